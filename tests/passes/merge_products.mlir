// RUN: tpuc opt --passes 'merge-products,hoist-weights' --target v5e %s | filecheck %s

// The gate and the other half of an MLP, for a few tokens: their weights are joined before the program runs.
// TOLERANCE: 1e-2
func.func public @main(%x: tensor<8x256xf32> {tpuc.argument = "input:x"}, %g: tensor<512x256xf32> {tpuc.argument = "weight:gate"}, %u: tensor<512x256xf32> {tpuc.argument = "weight:up"}, %d: tensor<256x512xf32> {tpuc.argument = "weight:down"}) -> tensor<8x256xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: [[Y:%.*]] = stablehlo.dot_general %arg0, [[W:%.*]], contracting_dims = [1] x [1] : (tensor<8x256xf32>, tensor<1024x256xf32>) -> tensor<8x1024xf32>
  // CHECK-DAG: stablehlo.slice [[Y]] [0:8, 0:512]
  // CHECK-DAG: stablehlo.slice [[Y]] [0:8, 512:1024]
  // CHECK: stablehlo.logistic
  // CHECK: stablehlo.dot_general
  // CHECK-NOT: stablehlo.dot_general
  // CHECK: func.func private @prepare
  // CHECK: stablehlo.concatenate %arg0, %arg1, dim = 0
  %0 = stablehlo.dot_general %x, %g, contracting_dims = [1] x [1] : (tensor<8x256xf32>, tensor<512x256xf32>) -> tensor<8x512xf32>
  %1 = stablehlo.logistic %0 : tensor<8x512xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<8x512xf32>
  %3 = stablehlo.dot_general %x, %u, contracting_dims = [1] x [1] : (tensor<8x256xf32>, tensor<512x256xf32>) -> tensor<8x512xf32>
  %4 = stablehlo.multiply %2, %3 : tensor<8x512xf32>
  %5 = stablehlo.dot_general %4, %d, contracting_dims = [1] x [1] : (tensor<8x512xf32>, tensor<256x512xf32>) -> tensor<8x256xf32>
  return %5 : tensor<8x256xf32>
}

// -----

// Results that do not meet before the next products are computed one by one.
func.func public @main(%x: tensor<8x256xf32> {tpuc.argument = "input:x"}, %a: tensor<256x256xf32> {tpuc.argument = "weight:a"}, %b: tensor<256x256xf32> {tpuc.argument = "weight:b"}) -> (tensor<8x256xf32>, tensor<8x256xf32>) {
  // CHECK-LABEL: func.func public @main
  // CHECK-NOT: stablehlo.slice
  // CHECK: return
  %0 = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<8x256xf32>, tensor<256x256xf32>) -> tensor<8x256xf32>
  %1 = stablehlo.dot_general %x, %b, contracting_dims = [1] x [0] : (tensor<8x256xf32>, tensor<256x256xf32>) -> tensor<8x256xf32>
  return %0, %1 : tensor<8x256xf32>, tensor<8x256xf32>
}

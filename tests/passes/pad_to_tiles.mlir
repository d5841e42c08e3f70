// RUN: tpuc opt --passes 'pad-to-tiles' --target v5e %s | filecheck %s

// One row: the matrix unit takes eight.
// TOLERANCE: 1e-4
func.func public @main(%x: tensor<1x2048xf32> {tpuc.argument = "input:x"}, %w: tensor<1000x2048xf32> {tpuc.argument = "weight:w"}) -> tensor<1x1000xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: [[X:%.*]] = stablehlo.pad %arg0, {{.*}}, low = [0, 0], high = [7, 0], interior = [0, 0]
  // CHECK: [[Y:%.*]] = stablehlo.dot_general [[X]],
  // CHECK: stablehlo.slice [[Y]] [0:1, 0:1000]
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<1x2048xf32>, tensor<1000x2048xf32>) -> tensor<1x1000xf32>
  return %0 : tensor<1x1000xf32>
}

// -----

// Dimensions that fill tiles stay, and so do batches of products.
func.func public @main(%x: tensor<8x128xf32> {tpuc.argument = "input:x"}, %w: tensor<128x256xf32> {tpuc.argument = "weight:w"}, %y: tensor<2x3x4xf32> {tpuc.argument = "input:y"}) -> (tensor<8x256xf32>, tensor<2x3x3xf32>) {
  // CHECK-NOT: stablehlo.pad
  // CHECK: return
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x128xf32>, tensor<128x256xf32>) -> tensor<8x256xf32>
  %1 = stablehlo.dot_general %y, %y, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>
  return %0, %1 : tensor<8x256xf32>, tensor<2x3x3xf32>
}

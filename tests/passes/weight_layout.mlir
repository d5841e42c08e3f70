// RUN: tpuc opt --passes 'weight-layout' --target v5e %s | filecheck %s

// A kernel of one position is stored as a matrix.
// TOLERANCE: 1e-4
func.func public @main(%x: tensor<1x512x7x7xf32> {tpuc.argument = "input:x"}, %w: tensor<2048x512x1x1xf32> {tpuc.argument = "weight:w"}) -> tensor<1x2048x7x7xf32> {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<1x512x7x7xf32> {tpuc.argument = "input:x"}, %arg1: tensor<2048x512xf32> {tpuc.argument = "prepared:prepare.0"})
  // CHECK-NEXT: [[K:%.*]] = stablehlo.reshape %arg1 : (tensor<2048x512xf32>) -> tensor<2048x512x1x1xf32>
  // CHECK-NEXT: stablehlo.convolution(%arg0, [[K]])
  // CHECK: func.func private @prepare.0(%arg0: tensor<2048x512x1x1xf32> {tpuc.argument = "weight:w"}) -> tensor<2048x512xf32>
  // CHECK-NEXT: stablehlo.reshape
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x512x7x7xf32>, tensor<2048x512x1x1xf32>) -> tensor<1x2048x7x7xf32>
  return %0 : tensor<1x2048x7x7xf32>
}

// -----

// What is split and turned for a convolution is stored that way, with what is computed before.
// TOLERANCE: 1e-4
func.func public @main(%x: tensor<1x115x115x12xf32> {tpuc.argument = "input:x"}, %w: tensor<8x8x3x64xf32> {tpuc.argument = "weight:w"}) -> tensor<1x112x112x64xf32> {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<1x115x115x12xf32> {tpuc.argument = "input:x"}, %arg1: tensor<4x4x12x64xf32> {tpuc.argument = "prepared:prepare.0"})
  // CHECK-NEXT: stablehlo.convolution(%arg0, %arg1)
  // CHECK: func.func private @prepare.0(%arg0: tensor<8x8x3x64xf32> {tpuc.argument = "weight:w"}) -> tensor<4x4x12x64xf32>
  // CHECK-NEXT: stablehlo.tanh
  // CHECK: stablehlo.transpose
  %0 = stablehlo.tanh %w : tensor<8x8x3x64xf32>
  %1 = stablehlo.reshape %0 : (tensor<8x8x3x64xf32>) -> tensor<4x2x4x2x3x64xf32>
  %2 = stablehlo.transpose %1, dims = [0, 2, 1, 3, 4, 5] : (tensor<4x2x4x2x3x64xf32>) -> tensor<4x4x2x2x3x64xf32>
  %3 = stablehlo.reshape %2 : (tensor<4x4x2x2x3x64xf32>) -> tensor<4x4x12x64xf32>
  %4 = stablehlo.convolution(%x, %3) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x115x115x12xf32>, tensor<4x4x12x64xf32>) -> tensor<1x112x112x64xf32>
  return %4 : tensor<1x112x112x64xf32>
}

// -----

// One row of biases is stored as a row: the compiler adds it to the product while it multiplies.
// TOLERANCE: 1e-4
func.func public @main(%x: tensor<8x768xf32> {tpuc.argument = "input:x"}, %w: tensor<768x768xf32> {tpuc.argument = "weight:w"}, %b: tensor<768xf32> {tpuc.argument = "weight:b"}) -> tensor<1x768xf32> {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<8x768xf32> {tpuc.argument = "input:x"}, %arg1: tensor<768x768xf32> {tpuc.argument = "weight:w"}, %arg2: tensor<1x768xf32> {tpuc.argument = "prepared:prepare.0"})
  // CHECK: [[Y:%.*]] = stablehlo.slice
  // CHECK-NEXT: stablehlo.add [[Y]], %arg2
  // CHECK: func.func private @prepare.0(%arg0: tensor<768xf32> {tpuc.argument = "weight:b"}) -> tensor<1x768xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<8x768xf32>, tensor<768x768xf32>) -> tensor<8x768xf32>
  %1 = stablehlo.slice %0 [0:1, 0:768] : (tensor<8x768xf32>) -> tensor<1x768xf32>
  %2 = stablehlo.reshape %b : (tensor<768xf32>) -> tensor<1x768xf32>
  %3 = stablehlo.add %1, %2 : tensor<1x768xf32>
  return %3 : tensor<1x768xf32>
}

// -----

// A matrix is read in either order, at no cost.
// TOLERANCE: 1e-4
func.func public @main(%x: tensor<128x768xf32> {tpuc.argument = "input:x"}, %w: tensor<768x768xf32> {tpuc.argument = "weight:w"}) -> tensor<128x768xf32> {
  // CHECK: stablehlo.transpose %arg1
  // CHECK-NOT: @prepare
  %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<768x768xf32>) -> tensor<768x768xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (tensor<128x768xf32>, tensor<768x768xf32>) -> tensor<128x768xf32>
  return %1 : tensor<128x768xf32>
}

// -----

// A weight that is read as it is too would be stored twice; inputs, and what is computed of one, are not stored.
func.func public @main(%x: tensor<1x768xf32> {tpuc.argument = "input:x"}, %b: tensor<768xf32> {tpuc.argument = "weight:b"}, %y: tensor<768xf32> {tpuc.argument = "input:y"}) -> (tensor<1x768xf32>, tensor<768xf32>, tensor<1x768xf32>) {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<1x768xf32> {tpuc.argument = "input:x"}, %arg1: tensor<768xf32> {tpuc.argument = "weight:b"}, %arg2: tensor<768xf32> {tpuc.argument = "input:y"})
  // CHECK-COUNT-2: stablehlo.reshape
  // CHECK-NOT: @prepare
  %0 = stablehlo.reshape %b : (tensor<768xf32>) -> tensor<1x768xf32>
  %1 = stablehlo.add %x, %0 : tensor<1x768xf32>
  %2 = stablehlo.add %b, %y : tensor<768xf32>
  %3 = stablehlo.reshape %2 : (tensor<768xf32>) -> tensor<1x768xf32>
  %4 = stablehlo.add %x, %3 : tensor<1x768xf32>
  return %1, %2, %4 : tensor<1x768xf32>, tensor<768xf32>, tensor<1x768xf32>
}

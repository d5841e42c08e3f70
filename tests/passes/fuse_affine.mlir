// RUN: tpuc opt --passes 'fuse-affine,cse' %s | filecheck %s

// A batch norm behind a convolution without a bias: its scale and shift come from four weights.
// TOLERANCE: 1e-5
func.func public @main(%x: tensor<2x3x8x8xf32> {tpuc.argument = "input:x"}, %w: tensor<4x3x3x3xf32> {tpuc.argument = "weight:w"}, %s: tensor<4xf32> {tpuc.argument = "weight:s"}, %b: tensor<4xf32> {tpuc.argument = "weight:b"}) -> tensor<2x4x8x8xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: %[[S:.*]] = stablehlo.broadcast_in_dim %arg2, dims = [0] : (tensor<4xf32>) -> tensor<4x3x3x3xf32>
  // CHECK: %[[W:.*]] = stablehlo.multiply %arg1, %[[S]]
  // CHECK: %[[Y:.*]] = stablehlo.convolution(%arg0, %[[W]])
  // CHECK: %[[B:.*]] = stablehlo.broadcast_in_dim %arg3, dims = [1]
  // CHECK: %[[Z:.*]] = stablehlo.add %[[Y]], %[[B]]
  // CHECK: return %[[Z]]
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x8x8xf32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<4xf32>) -> tensor<2x4x8x8xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<2x4x8x8xf32>
  %3 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<2x4x8x8xf32>
  %4 = stablehlo.add %2, %3 : tensor<2x4x8x8xf32>
  return %4 : tensor<2x4x8x8xf32>
}

// -----

// A bias, a mean and a divisor, in groups of channels, one of them given with its dimensions of size one.
// TOLERANCE: 1e-5
func.func public @main(%x: tensor<2x4x8xf32> {tpuc.argument = "input:x"}, %w: tensor<6x2x3xf32> {tpuc.argument = "weight:w"}, %c: tensor<6xf32> {tpuc.argument = "weight:c"}, %m: tensor<1x6x1xf32> {tpuc.argument = "weight:m"}, %v: tensor<6xf32> {tpuc.argument = "weight:v"}, %g: tensor<6xf32> {tpuc.argument = "weight:g"}) -> tensor<2x6x6xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: stablehlo.convolution
  // CHECK-NEXT: stablehlo.broadcast_in_dim
  // CHECK-NEXT: stablehlo.add
  // CHECK-NEXT: return
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<2x4x8xf32>, tensor<6x2x3xf32>) -> tensor<2x6x6xf32>
  %1 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<6xf32>) -> tensor<2x6x6xf32>
  %2 = stablehlo.add %1, %0 : tensor<2x6x6xf32>
  %3 = stablehlo.broadcast_in_dim %m, dims = [0, 1, 2] : (tensor<1x6x1xf32>) -> tensor<2x6x6xf32>
  %4 = stablehlo.subtract %2, %3 : tensor<2x6x6xf32>
  %one = stablehlo.constant dense<1.0> : tensor<6xf32>
  %5 = stablehlo.multiply %v, %v : tensor<6xf32>
  %6 = stablehlo.add %5, %one : tensor<6xf32>
  %7 = stablehlo.broadcast_in_dim %6, dims = [1] : (tensor<6xf32>) -> tensor<2x6x6xf32>
  %8 = stablehlo.divide %4, %7 : tensor<2x6x6xf32>
  %9 = stablehlo.broadcast_in_dim %g, dims = [1] : (tensor<6xf32>) -> tensor<2x6x6xf32>
  %10 = stablehlo.multiply %9, %8 : tensor<2x6x6xf32>
  return %10 : tensor<2x6x6xf32>
}

// -----

// bf16 through a conversion: the scaled weight is bf16 again, the shift stays f32.
// TOLERANCE: 3e-2
func.func public @main(%x: tensor<4x8xbf16> {tpuc.argument = "input:x"}, %w: tensor<8x16xbf16> {tpuc.argument = "weight:w"}, %s: tensor<16xf32> {tpuc.argument = "weight:s"}, %b: tensor<16xf32> {tpuc.argument = "weight:b"}) -> tensor<4x16xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: %[[W:.*]] = stablehlo.convert %{{.*}} : (tensor<8x16xf32>) -> tensor<8x16xbf16>
  // CHECK: %[[Y:.*]] = stablehlo.dot_general %arg0, %[[W]]
  // CHECK-NEXT: %[[F:.*]] = stablehlo.convert %[[Y]]
  // CHECK-NEXT: stablehlo.broadcast_in_dim
  // CHECK-NEXT: stablehlo.add %[[F]]
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
  %1 = stablehlo.convert %0 : (tensor<4x16xbf16>) -> tensor<4x16xf32>
  %2 = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<16xf32>) -> tensor<4x16xf32>
  %3 = stablehlo.multiply %1, %2 : tensor<4x16xf32>
  %4 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<16xf32>) -> tensor<4x16xf32>
  %5 = stablehlo.add %3, %4 : tensor<4x16xf32>
  return %5 : tensor<4x16xf32>
}

// -----

// A constant factor of all queries, behind their bias; weights on the left.
// TOLERANCE: 1e-5
func.func public @main(%x: tensor<4x8xf32> {tpuc.argument = "input:x"}, %w: tensor<16x8xf32> {tpuc.argument = "weight:w"}, %b: tensor<16xf32> {tpuc.argument = "weight:b"}) -> tensor<16x4xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: %[[W:.*]] = stablehlo.multiply %arg1
  // CHECK: %[[Y:.*]] = stablehlo.dot_general %[[W]], %arg0
  // CHECK-NEXT: stablehlo.broadcast_in_dim
  // CHECK-NEXT: stablehlo.add %[[Y]]
  // CHECK-NEXT: return
  %0 = stablehlo.dot_general %w, %x, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<4x8xf32>) -> tensor<16x4xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<16xf32>) -> tensor<16x4xf32>
  %2 = stablehlo.add %0, %1 : tensor<16x4xf32>
  %c = stablehlo.constant dense<0.125> : tensor<16x4xf32>
  %3 = stablehlo.multiply %2, %c : tensor<16x4xf32>
  return %3 : tensor<16x4xf32>
}

// -----

// A scale before: of the channels that are summed over.
// TOLERANCE: 1e-5
func.func public @main(%x: tensor<2x3x8x8xf32> {tpuc.argument = "input:x"}, %w: tensor<4x3x3x3xf32> {tpuc.argument = "weight:w"}, %s: tensor<3xf32> {tpuc.argument = "weight:s"}) -> tensor<2x4x8x8xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: stablehlo.convolution(%arg0,
  // CHECK-NEXT: return
  %0 = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<3xf32>) -> tensor<2x3x8x8xf32>
  %1 = stablehlo.multiply %x, %0 : tensor<2x3x8x8xf32>
  %2 = stablehlo.convolution(%1, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x8x8xf32>
  return %2 : tensor<2x4x8x8xf32>
}

// -----

// These stay: a scale of rows, one that an input decides, a weight that something else reads, a result that
// something else reads, a shift alone, and f16.
func.func public @main(%x: tensor<4x8xf32> {tpuc.argument = "input:x"}, %w: tensor<8x16xf32> {tpuc.argument = "weight:w"}, %s: tensor<4xf32> {tpuc.argument = "weight:s"}, %i: tensor<16xf32> {tpuc.argument = "input:i"}, %w1: tensor<8x16xf32> {tpuc.argument = "weight:w1"}, %w2: tensor<8x16xf32> {tpuc.argument = "weight:w2"}, %w3: tensor<8x16xf32> {tpuc.argument = "weight:w3"}, %w4: tensor<8x16xf32> {tpuc.argument = "weight:w4"}, %t: tensor<16xf32> {tpuc.argument = "weight:t"}, %xh: tensor<4x8xf16> {tpuc.argument = "input:xh"}, %wh: tensor<8x16xf16> {tpuc.argument = "weight:wh"}, %th: tensor<16xf16> {tpuc.argument = "weight:th"}) -> (tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<8x16xf32>, tensor<4x16xf32>, tensor<4x16xf16>) {
  // CHECK-LABEL: func.func public @main
  // CHECK-DAG: stablehlo.dot_general %arg0, %arg1,
  // CHECK-DAG: stablehlo.dot_general %arg0, %arg4,
  // CHECK-DAG: stablehlo.dot_general %arg0, %arg5,
  // CHECK-DAG: stablehlo.dot_general %arg0, %arg6,
  // CHECK-DAG: stablehlo.dot_general %arg0, %arg7,
  // CHECK-DAG: stablehlo.dot_general %arg9, %arg10,
  %tb = stablehlo.broadcast_in_dim %t, dims = [1] : (tensor<16xf32>) -> tensor<4x16xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4xf32>) -> tensor<4x16xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<4x16xf32>
  %3 = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %4 = stablehlo.broadcast_in_dim %i, dims = [1] : (tensor<16xf32>) -> tensor<4x16xf32>
  %5 = stablehlo.multiply %3, %4 : tensor<4x16xf32>
  %6 = stablehlo.dot_general %x, %w2, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %7 = stablehlo.multiply %6, %tb : tensor<4x16xf32>
  %8 = stablehlo.dot_general %x, %w3, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %9 = stablehlo.multiply %8, %tb : tensor<4x16xf32>
  %10 = stablehlo.dot_general %x, %w4, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %11 = stablehlo.add %10, %tb : tensor<4x16xf32>
  %12 = stablehlo.dot_general %xh, %wh, contracting_dims = [1] x [0] : (tensor<4x8xf16>, tensor<8x16xf16>) -> tensor<4x16xf16>
  %13 = stablehlo.broadcast_in_dim %th, dims = [1] : (tensor<16xf16>) -> tensor<4x16xf16>
  %14 = stablehlo.multiply %12, %13 : tensor<4x16xf16>
  return %2, %5, %7, %8, %9, %w2, %11, %14 : tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<8x16xf32>, tensor<4x16xf32>, tensor<4x16xf16>
}

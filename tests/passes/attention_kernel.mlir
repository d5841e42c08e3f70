// RUN: tpuc opt --passes 'attention-kernel' --target v5p %s | filecheck %s

// Scores that fit the VMEM: the decomposition, and nothing else is left.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
// CHECK: stablehlo.dot_general
// CHECK-NOT: func.func private
func.func private @attention(
    %query: tensor<1x2x4x8xf32>, %key: tensor<1x2x4x8xf32>, %value: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = stablehlo.dot_general %query, %key, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x4xf32> loc(unknown)
  %1 = stablehlo.dot_general %0, %value, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<1x2x4x4xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> loc(unknown)
  return %1 : tensor<1x2x4x8xf32>
}
func.func @main(
    %query: tensor<1x2x4x8xf32>, %key: tensor<1x2x4x8xf32>, %value: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = stablehlo.composite "tpuc.attention" %query, %key, %value {
      composite_attributes = {is_causal = false, scale = 1.0 : f64}, decomposition = @attention}
      : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> loc(""("attention.py":3:0))
  return %0 : tensor<1x2x4x8xf32>
}

// -----

// A composite of something else stays.
// CHECK: func.func private @square
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "test.square" {{.*}}decomposition = @square
func.func private @square(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.multiply %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.composite "test.square" %x {decomposition = @square} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// RUN: tpuc opt --passes 'unbatch-dot' %s | filecheck %s

// A batch of matrices by one matrix.
func.func @main(%x: tensor<2x3x4xf32>, %w: tensor<4x5xf32>) -> tensor<2x3x5xf32> {
  // CHECK-NOT: broadcast_in_dim
  // CHECK: stablehlo.dot_general %arg0, %arg1, contracting_dims = [2] x [0], precision = [DEFAULT, HIGHEST] : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
  %0 = stablehlo.broadcast_in_dim %w, dims = [1, 2] : (tensor<4x5xf32>) -> tensor<2x4x5xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, HIGHEST] : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}

// -----

// Two batching dimensions, and the copies turn the matrix around.
func.func @main(%x: tensor<2x3x6x4xf32>, %w: tensor<5x4xf32>) -> tensor<2x3x6x5xf32> {
  // CHECK: stablehlo.dot_general %arg0, %arg1, contracting_dims = [3] x [1] : (tensor<2x3x6x4xf32>, tensor<5x4xf32>) -> tensor<2x3x6x5xf32>
  %0 = stablehlo.broadcast_in_dim %w, dims = [3, 2] : (tensor<5x4xf32>) -> tensor<2x3x4x5xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<2x3x6x4xf32>, tensor<2x3x4x5xf32>) -> tensor<2x3x6x5xf32>
  return %1 : tensor<2x3x6x5xf32>
}

// -----

// A matrix of its own for each batch.
func.func @main(%x: tensor<2x3x4xf32>, %w: tensor<2x4xf32>) -> tensor<2x3x5xf32> {
  // CHECK: batching_dims = [0] x [0]
  %0 = stablehlo.broadcast_in_dim %w, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x5xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}

// -----

// Copies along a dimension that is multiplied, not only along batches.
func.func @main(%x: tensor<2x3x4xf32>, %w: tensor<1x5xf32>) -> tensor<2x3x5xf32> {
  // CHECK: batching_dims = [0] x [0]
  %0 = stablehlo.broadcast_in_dim %w, dims = [1, 2] : (tensor<1x5xf32>) -> tensor<2x4x5xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}

// -----

// The batch is not the first dimension of the other operand: as a free dimension it would come elsewhere.
func.func @main(%x: tensor<3x2x4xf32>, %w: tensor<4x5xf32>) -> tensor<2x3x5xf32> {
  // CHECK: batching_dims = [1] x [0]
  %0 = stablehlo.broadcast_in_dim %w, dims = [1, 2] : (tensor<4x5xf32>) -> tensor<2x4x5xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [1] x [0], contracting_dims = [2] x [1] : (tensor<3x2x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}

// -----

// Two free dimensions that the copies swap.
func.func @main(%x: tensor<2x3x4xf32>, %w: tensor<6x5x4xf32>) -> tensor<2x3x5x6xf32> {
  // CHECK: batching_dims = [0] x [0]
  %0 = stablehlo.broadcast_in_dim %w, dims = [2, 1, 3] : (tensor<6x5x4xf32>) -> tensor<2x5x6x4xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [3] : (tensor<2x3x4xf32>, tensor<2x5x6x4xf32>) -> tensor<2x3x5x6xf32>
  return %1 : tensor<2x3x5x6xf32>
}

// RUN: tpuc opt --passes 'expand-i64-products' --target v5e %s | filecheck %s

// A product of matrices, one of a row and a column, and one over two dimensions.
func.func @main(%x: tensor<2x3xi64>, %y: tensor<3x4xi64>, %z: tensor<3xi64>, %w: tensor<4x3x2xi64>)
    -> (tensor<2x4xi64>, tensor<i64>, tensor<4xi64>) {
  // CHECK-NOT: stablehlo.dot_general
  // CHECK: stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<2x3xi64>) -> tensor<2x4x3xi64>
  // CHECK: stablehlo.broadcast_in_dim %arg1, dims = [2, 1] : (tensor<3x4xi64>) -> tensor<2x4x3xi64>
  // CHECK: stablehlo.reduce({{.*}} applies stablehlo.add across dimensions = [2]
  // CHECK: stablehlo.reduce({{.*}} across dimensions = [0]
  // CHECK: stablehlo.reduce({{.*}} across dimensions = [1, 2]
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<2x3xi64>, tensor<3x4xi64>) -> tensor<2x4xi64>
  %1 = stablehlo.dot_general %z, %z, contracting_dims = [0] x [0] : (tensor<3xi64>, tensor<3xi64>) -> tensor<i64>
  %2 = stablehlo.dot_general %x, %w, contracting_dims = [0, 1] x [2, 1] : (tensor<2x3xi64>, tensor<4x3x2xi64>) -> tensor<4xi64>
  return %0, %1, %2 : tensor<2x4xi64>, tensor<i64>, tensor<4xi64>
}

// -----

// Batches, of unsigned numbers too, in any place; and nothing that is summed.
func.func @main(%x: tensor<3x5x2xui64>, %y: tensor<2x5x4xui64>, %z: tensor<5x2xi64>, %w: tensor<5x3xi64>)
    -> (tensor<5x3x4xui64>, tensor<5x2x3xi64>) {
  // CHECK-NOT: stablehlo.dot_general
  // CHECK: stablehlo.reduce
  // CHECK-NOT: stablehlo.reduce
  // CHECK: return
  %0 = stablehlo.dot_general %x, %y, batching_dims = [1] x [1], contracting_dims = [2] x [0]
      : (tensor<3x5x2xui64>, tensor<2x5x4xui64>) -> tensor<5x3x4xui64>
  %1 = stablehlo.dot_general %z, %w, batching_dims = [0] x [0], contracting_dims = [] x []
      : (tensor<5x2xi64>, tensor<5x3xi64>) -> tensor<5x2x3xi64>
  return %0, %1 : tensor<5x3x4xui64>, tensor<5x2x3xi64>
}

// -----

// Other products stay, also where narrow numbers are summed in 64 bits.
func.func @main(%x: tensor<2x3xi32>, %y: tensor<2x3xf64>, %z: tensor<2x3xi8>) -> (tensor<2x2xi32>, tensor<2x2xf64>, tensor<2x2xi64>) {
  // CHECK-COUNT-3: stablehlo.dot_general
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x2xi32>
  %1 = stablehlo.dot_general %y, %y, contracting_dims = [1] x [1] : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x2xf64>
  %2 = stablehlo.dot_general %z, %z, contracting_dims = [1] x [1] : (tensor<2x3xi8>, tensor<2x3xi8>) -> tensor<2x2xi64>
  return %0, %1, %2 : tensor<2x2xi32>, tensor<2x2xf64>, tensor<2x2xi64>
}

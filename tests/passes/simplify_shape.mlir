// RUN: tpuc opt --passes 'simplify-shape' %s | filecheck %s

// Reshapes become one, or none.
func.func @main(%x: tensor<4x6xf32>) -> (tensor<2x12xf32>, tensor<4x6xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.reshape %arg0 : (tensor<4x6xf32>) -> tensor<2x12xf32>
  // CHECK-NEXT: return [[X]], %arg0
  %0 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32>
  %1 = stablehlo.reshape %0 : (tensor<24xf32>) -> tensor<2x12xf32>
  %2 = stablehlo.reshape %1 : (tensor<2x12xf32>) -> tensor<4x6xf32>
  return %1, %2 : tensor<2x12xf32>, tensor<4x6xf32>
}

// -----

// A row that keeps its reduced dimension, spread again.
func.func @main(%x: tensor<8xf32>) -> tensor<1x8x4xf32> {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<8xf32>) -> tensor<1x8x4xf32>
  // CHECK-NEXT: return [[X]]
  %0 = stablehlo.reshape %x : (tensor<8xf32>) -> tensor<1x8xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x8xf32>) -> tensor<1x8x1xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x8x1xf32>) -> tensor<1x8x4xf32>
  return %2 : tensor<1x8x4xf32>
}

// -----

// Broadcasts become one, and those that only add dimensions of size one are reshapes.
func.func @main(%x: tensor<8xf32>, %y: tensor<2x3xf32>) -> (tensor<2x4x8xf32>, tensor<1x2x3x1xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.broadcast_in_dim %arg0, dims = [2] : (tensor<8xf32>) -> tensor<2x4x8xf32>
  // CHECK-NEXT: [[Y:%.*]] = stablehlo.reshape %arg1 : (tensor<2x3xf32>) -> tensor<1x2x3x1xf32>
  // CHECK-NEXT: return [[X]], [[Y]]
  %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1, 2] : (tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<2x3xf32>) -> tensor<1x2x3x1xf32>
  return %1, %2 : tensor<2x4x8xf32>, tensor<1x2x3x1xf32>
}

// -----

// A reshape that only adds or drops dimensions of size one becomes part of the broadcast before it.
func.func @main(%x: tensor<1x3xf32>) -> tensor<5x1x3xf32> {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[ROW:%.*]] = stablehlo.reshape %arg0 : (tensor<1x3xf32>) -> tensor<3xf32>
  // CHECK-NEXT: [[X:%.*]] = stablehlo.broadcast_in_dim [[ROW]], dims = [2] : (tensor<3xf32>) -> tensor<5x1x3xf32>
  // CHECK-NEXT: return [[X]]
  %0 = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<1x3xf32>) -> tensor<1x5x3xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x5x3xf32>) -> tensor<5x1x3xf32>
  return %1 : tensor<5x1x3xf32>
}

// -----

// A reshape that merges dimensions is not part of a broadcast; nor is one that splits them.
func.func @main(%x: tensor<3xf32>, %y: tensor<6xf32>) -> (tensor<15xf32>, tensor<2x3x4xf32>) {
  // CHECK:      stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<3xf32>) -> tensor<5x3xf32>
  // CHECK-NEXT: stablehlo.reshape {{.*}} -> tensor<15xf32>
  // CHECK-NEXT: stablehlo.reshape %arg1 : (tensor<6xf32>) -> tensor<2x3xf32>
  // CHECK-NEXT: stablehlo.broadcast_in_dim {{.*}} -> tensor<2x3x4xf32>
  %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<3xf32>) -> tensor<5x3xf32>
  %1 = stablehlo.reshape %0 : (tensor<5x3xf32>) -> tensor<15xf32>
  %2 = stablehlo.reshape %y : (tensor<6xf32>) -> tensor<2x3xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x4xf32>
  return %1, %3 : tensor<15xf32>, tensor<2x3x4xf32>
}

// -----

// A broadcast that turns dimensions around is a transpose, whatever its size.
func.func @main(%x: tensor<3x3xf32>, %y: tensor<1x3xf32>) -> (tensor<3x3xf32>, tensor<3x1xf32>) {
  // CHECK: stablehlo.broadcast_in_dim %arg0, dims = [1, 0]
  // CHECK: stablehlo.broadcast_in_dim %arg1, dims = [1, 0]
  %0 = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %1 = stablehlo.broadcast_in_dim %y, dims = [1, 0] : (tensor<1x3xf32>) -> tensor<3x1xf32>
  return %0, %1 : tensor<3x3xf32>, tensor<3x1xf32>
}

// -----

// What moves nothing.
func.func @main(%x: tensor<4x1xf32>, %zero: tensor<f32>) -> (tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: return %arg0, %arg0, %arg0, %arg0, %arg0
  %0 = stablehlo.slice %x [0:4, 0:1] : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %1 = stablehlo.pad %x, %zero, low = [0, 0], high = [0, 0], interior = [0, 3] : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %2 = stablehlo.reverse %x, dims = [1] : tensor<4x1xf32>
  %3 = stablehlo.concatenate %x, dim = 0 : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %4 = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x1xf32>
  return %0, %1, %2, %3, %4 : tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>
}

// -----

// What keeps the shape and moves elements all the same.
func.func @main(%x: tensor<4xf32>, %zero: tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK: stablehlo.pad %arg0, %arg1, low = [-1], high = [1]
  // CHECK: stablehlo.reverse %arg0
  %0 = stablehlo.pad %x, %zero, low = [-1], high = [1], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.reverse %x, dims = [0] : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

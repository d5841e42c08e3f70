// RUN: tpuc opt --passes 'cse' %s | filecheck %s

// Equal operations become one; what nobody reads goes.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK:      [[E:%.*]] = stablehlo.exponential %arg0
  // CHECK-NEXT: [[SUM:%.*]] = stablehlo.add [[E]], [[E]]
  // CHECK-NEXT: return [[SUM]]
  %0 = stablehlo.exponential %x : tensor<4xf32>
  %1 = stablehlo.exponential %x : tensor<4xf32>
  %2 = stablehlo.add %0, %1 : tensor<4xf32>
  %3 = stablehlo.negate %x : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// Reductions too, by what they combine with.
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK:     stablehlo.reduce
  // CHECK-NOT: stablehlo.reduce
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Different attributes make different operations.
func.func @main(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  // CHECK: stablehlo.reverse %arg0, dims = [0]
  // CHECK: stablehlo.reverse %arg0, dims = [1]
  %0 = stablehlo.reverse %x, dims = [0] : tensor<4x4xf32>
  %1 = stablehlo.reverse %x, dims = [1] : tensor<4x4xf32>
  return %0, %1 : tensor<4x4xf32>, tensor<4x4xf32>
}

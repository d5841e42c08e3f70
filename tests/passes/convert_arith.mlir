// RUN: tpuc opt --passes 'convert-arith' %s | filecheck %s

// Constants of arith and chlo; those of index go with their readers.
func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NOT: arith.constant
  // CHECK-NOT: chlo.constant
  // CHECK-DAG: stablehlo.constant dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
  // CHECK-DAG: stablehlo.constant dense<3.000000e+00> : tensor<2xf32>
  // CHECK-DAG: stablehlo.constant dense<4.000000e+00> : tensor<2xf32>
  // CHECK: return
  %unused = arith.constant dense<[7, 8]> : tensor<2xindex>
  %0 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = chlo.constant dense<3.0> : tensor<2xf32>
  %2 = "chlo.constant_like"(%x) <{value = 4.0 : f32}> : (tensor<2xf32>) -> tensor<2xf32>
  return %0, %1, %2 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// -----

// Trailing dimensions are broadcast to trailing dimensions.
func.func @main(%x: tensor<4x8xf32>, %bias: tensor<8xf32>, %column: tensor<4x1xf32>, %scalar: tensor<f32>) -> tensor<4x8xf32> {
  // CHECK:      [[BIAS:%.*]] = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: [[SUM:%.*]] = stablehlo.add %arg0, [[BIAS]] : tensor<4x8xf32>
  // CHECK-NEXT: [[COLUMN:%.*]] = stablehlo.broadcast_in_dim %arg2, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: [[DIFFERENCE:%.*]] = stablehlo.subtract [[SUM]], [[COLUMN]] : tensor<4x8xf32>
  // CHECK-NEXT: [[SCALAR:%.*]] = stablehlo.broadcast_in_dim %arg3, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  // CHECK-NEXT: stablehlo.multiply [[SCALAR]], [[DIFFERENCE]] : tensor<4x8xf32>
  %0 = chlo.broadcast_add %x, %bias : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = chlo.broadcast_subtract %0, %column : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %2 = chlo.broadcast_multiply %scalar, %1 : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// Both operands may grow; operands of the result's shape are taken as they are.
func.func @main(%row: tensor<1x8xf32>, %column: tensor<4x1xf32>, %x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK:      [[ROW:%.*]] = stablehlo.broadcast_in_dim %arg0, dims = [0, 1]
  // CHECK-NEXT: [[COLUMN:%.*]] = stablehlo.broadcast_in_dim %arg1, dims = [0, 1]
  // CHECK-NEXT: [[MAXIMUM:%.*]] = stablehlo.maximum [[ROW]], [[COLUMN]]
  // CHECK-NEXT: stablehlo.divide [[MAXIMUM]], %arg2
  %0 = chlo.broadcast_maximum %row, %column : (tensor<1x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %1 = chlo.broadcast_divide %0, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// Dimensions that are named count, for the operand of lower rank.
func.func @main(%x: tensor<4x8xf32>, %column: tensor<4xf32>) -> tensor<4x8xf32> {
  // CHECK: stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  // CHECK: stablehlo.add
  %0 = chlo.broadcast_add %x, %column {broadcast_dimensions = array<i64: 0>} : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
func.func @reference(%x: tensor<4x8xf32>, %column: tensor<4xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.broadcast_in_dim %column, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.add %x, %0 : tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// Integers and bools.
func.func @main(%a: tensor<4xi32>, %b: tensor<1xi32>, %p: tensor<4xi1>, %q: tensor<i1>) -> (tensor<4xi32>, tensor<4xi1>) {
  // CHECK: stablehlo.xor
  // CHECK: stablehlo.shift_left
  // CHECK: stablehlo.and
  // CHECK: stablehlo.or
  %0 = chlo.broadcast_xor %a, %b : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>
  %1 = chlo.broadcast_shift_left %0, %0 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  %2 = chlo.broadcast_and %p, %q : (tensor<4xi1>, tensor<i1>) -> tensor<4xi1>
  %3 = chlo.broadcast_or %2, %p : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %1, %3 : tensor<4xi32>, tensor<4xi1>
}

// -----

// Operations of chlo that do not broadcast stay.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: chlo.erf %arg0
  %0 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Comparing and selecting.
func.func @main(%x: tensor<4x8xf32>, %row: tensor<8xf32>, %zero: tensor<f32>) -> (tensor<4x8xi1>, tensor<4x8xf32>) {
  // EXACT
  // CHECK:      [[ROW:%.*]] = stablehlo.broadcast_in_dim %arg1, dims = [1]
  // CHECK-NEXT: [[LESS:%.*]] = stablehlo.compare LT, %arg0, [[ROW]], FLOAT
  // CHECK-NEXT: [[ZERO:%.*]] = stablehlo.broadcast_in_dim %arg2, dims = []
  // CHECK-NEXT: stablehlo.select [[LESS]], %arg0, [[ZERO]]
  %0 = chlo.broadcast_compare %x, %row {compare_type = #chlo<comparison_type FLOAT>, comparison_direction = #chlo<comparison_direction LT>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xi1>
  %1 = chlo.broadcast_select %0, %x, %zero : (tensor<4x8xi1>, tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %0, %1 : tensor<4x8xi1>, tensor<4x8xf32>
}

// -----

// Sizes that are operands say nothing that the result's type does not say.
func.func @main(%x: tensor<4x8xf32>) -> (tensor<2x16xf32>, tensor<3x4x8xf32>, tensor<5xi32>) {
  // CHECK-NOT: arith.constant
  // CHECK-DAG: stablehlo.reshape %arg0 : (tensor<4x8xf32>) -> tensor<2x16xf32>
  // CHECK-DAG: stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : (tensor<4x8xf32>) -> tensor<3x4x8xf32>
  // CHECK-DAG: stablehlo.iota dim = 0 : tensor<5xi32>
  %shape = arith.constant dense<[2, 16]> : tensor<2xindex>
  %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<4x8xf32>, tensor<2xindex>) -> tensor<2x16xf32>
  %sizes = arith.constant dense<[3, 4, 8]> : tensor<3xindex>
  %1 = stablehlo.dynamic_broadcast_in_dim %x, %sizes, dims = [1, 2] : (tensor<4x8xf32>, tensor<3xindex>) -> tensor<3x4x8xf32>
  %size = arith.constant dense<5> : tensor<1xi32>
  %2 = stablehlo.dynamic_iota %size, dim = 0 : (tensor<1xi32>) -> tensor<5xi32>
  return %0, %1, %2 : tensor<2x16xf32>, tensor<3x4x8xf32>, tensor<5xi32>
}

// -----

// A slice between constant bounds.
func.func @main(%x: tensor<4x8xf32>) -> tensor<2x4xf32> {
  // CHECK: stablehlo.slice %arg0 [1:3, 0:8:2] : (tensor<4x8xf32>) -> tensor<2x4xf32>
  %start = arith.constant dense<[1, 0]> : tensor<2xi32>
  %limit = arith.constant dense<[3, 8]> : tensor<2xi32>
  %strides = arith.constant dense<[1, 2]> : tensor<2xi32>
  %0 = stablehlo.real_dynamic_slice %x, %start, %limit, %strides : (tensor<4x8xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// Padding by constants.
func.func @main(%x: tensor<4xf32>, %zero: tensor<f32>) -> tensor<8xf32> {
  // CHECK: stablehlo.pad %arg0, %arg1, low = [-1], high = [2], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  %low = stablehlo.constant dense<-1> : tensor<1xi32>
  %high = stablehlo.constant dense<2> : tensor<1xi32>
  %interior = stablehlo.constant dense<1> : tensor<1xi32>
  %0 = stablehlo.dynamic_pad %x, %zero, %low, %high, %interior : (tensor<4xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// An embedding's lookup.
func.func @main(%table: tensor<5x8xf32>, %ids: tensor<3xi64>) -> tensor<3x8xf32> {
  // CHECK: "stablehlo.gather"(%arg0, %arg1)
  // CHECK-SAME: slice_sizes = array<i64: 1, 8>
  %sizes = arith.constant dense<[1, 8]> : tensor<2xi32>
  %0 = "stablehlo.dynamic_gather"(%table, %ids, %sizes) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false}> : (tensor<5x8xf32>, tensor<3xi64>, tensor<2xi32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}
func.func @reference(%table: tensor<5x8xf32>, %ids: tensor<3xi64>) -> tensor<3x8xf32> {
  %0 = "stablehlo.gather"(%table, %ids) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<5x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// -----

// One operation for products, of matrices and of vectors.
func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>, %v: tensor<8xf32>) -> (tensor<4x2xf32>, tensor<2xf32>, tensor<f32>) {
  // CHECK: stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  // CHECK: stablehlo.dot_general %arg2, %arg1, contracting_dims = [0] x [0] : (tensor<8xf32>, tensor<8x2xf32>) -> tensor<2xf32>
  // CHECK: stablehlo.dot_general %arg2, %arg2, contracting_dims = [0] x [0] : (tensor<8xf32>, tensor<8xf32>) -> tensor<f32>
  %0 = stablehlo.dot %a, %b, precision = [HIGHEST, DEFAULT] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %1 = stablehlo.dot %v, %b : (tensor<8xf32>, tensor<8x2xf32>) -> tensor<2xf32>
  %2 = stablehlo.dot %v, %v : (tensor<8xf32>, tensor<8xf32>) -> tensor<f32>
  return %0, %1, %2 : tensor<4x2xf32>, tensor<2xf32>, tensor<f32>
}

// -----

// What is left of the tensor dialect.
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4xi32>, tensor<4x8xf32>, tensor<1x1xf32>, tensor<2xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NOT: tensor.
  // CHECK-DAG: stablehlo.constant dense<0> : tensor<4xi32>
  // CHECK-DAG: [[SLICE:%.*]] = stablehlo.slice %arg0 [2:3, 1:2] : (tensor<4x8xf32>) -> tensor<1x1xf32>
  // CHECK-DAG: stablehlo.constant dense<0.000000e+00> : tensor<2xf32>
  // CHECK: return {{.*}}, %arg0, [[SLICE]]
  %0 = tensor.empty() : tensor<4xi32>
  %unknown = tensor.cast %x : tensor<4x8xf32> to tensor<?x8xf32>
  %1 = tensor.cast %unknown : tensor<?x8xf32> to tensor<4x8xf32>
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %element = tensor.extract %x[%c2, %c1] : tensor<4x8xf32>
  %2 = tensor.from_elements %element : tensor<1x1xf32>
  %3 = tensor.empty() : tensor<2xf32>
  return %0, %1, %2, %3 : tensor<4xi32>, tensor<4x8xf32>, tensor<1x1xf32>, tensor<2xf32>
}
func.func @reference(%x: tensor<4x8xf32>) -> (tensor<4xi32>, tensor<4x8xf32>, tensor<1x1xf32>, tensor<2xf32>) {
  %0 = stablehlo.constant dense<0> : tensor<4xi32>
  %1 = stablehlo.slice %x [2:3, 1:2] : (tensor<4x8xf32>) -> tensor<1x1xf32>
  %2 = stablehlo.constant dense<0.0> : tensor<2xf32>
  return %0, %x, %1, %2 : tensor<4xi32>, tensor<4x8xf32>, tensor<1x1xf32>, tensor<2xf32>
}

// -----

// Static operations stay as they are.
func.func @main(%x: tensor<4x8xf32>) -> tensor<32xf32> {
  // CHECK: [[X:%.*]] = stablehlo.reshape %arg0
  // CHECK-NEXT: return [[X]]
  %0 = stablehlo.reshape %x : (tensor<4x8xf32>) -> tensor<32xf32>
  return %0 : tensor<32xf32>
}

// RUN: tpuc opt --passes 'fold-transpose' %s | filecheck %s

// Into a matrix product, from both sides; how it is computed stays.
func.func @main(%x: tensor<4x3xf32>, %w: tensor<5x4xf32>) -> tensor<3x5xf32> {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[Y:%.*]] = stablehlo.dot_general %arg0, %arg1, contracting_dims = [0] x [1], precision = [HIGHEST, DEFAULT] : (tensor<4x3xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
  // CHECK-NEXT: return [[Y]]
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %1 = stablehlo.transpose %w, dims = [1, 0] : (tensor<5x4xf32>) -> tensor<4x5xf32>
  %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT] : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  return %2 : tensor<3x5xf32>
}

// -----

// Attention: keys are not turned around for the product with queries; heads come forward as they did.
func.func @main(%q: tensor<1x5x2x4xf32>, %k: tensor<1x6x2x4xf32>) -> tensor<1x2x5x6xf32> {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[Q:%.*]] = stablehlo.transpose %arg0, dims = [0, 2, 1, 3]
  // CHECK-NEXT: [[K:%.*]] = stablehlo.transpose %arg1, dims = [0, 2, 1, 3]
  // CHECK-NEXT: stablehlo.dot_general [[Q]], [[K]], batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
  %0 = stablehlo.transpose %q, dims = [0, 2, 1, 3] : (tensor<1x5x2x4xf32>) -> tensor<1x2x5x4xf32>
  %1 = stablehlo.transpose %k, dims = [0, 2, 1, 3] : (tensor<1x6x2x4xf32>) -> tensor<1x2x6x4xf32>
  %2 = stablehlo.transpose %1, dims = [0, 1, 3, 2] : (tensor<1x2x6x4xf32>) -> tensor<1x2x4x6xf32>
  %3 = stablehlo.dot_general %0, %2, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<1x2x5x4xf32>, tensor<1x2x4x6xf32>) -> tensor<1x2x5x6xf32>
  return %3 : tensor<1x2x5x6xf32>
}

// -----

// Two free dimensions that change places would change places in the product.
func.func @main(%x: tensor<3x2x4xf32>, %w: tensor<4x5xf32>) -> tensor<2x3x5xf32> {
  // CHECK: stablehlo.transpose %arg0, dims = [1, 0, 2]
  // CHECK: stablehlo.dot_general
  %0 = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<3x2x4xf32>) -> tensor<2x3x4xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [2] x [0] : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}

// -----

// Of a product: the operands change places.
func.func @main(%x: tensor<2x3x4xf32>, %y: tensor<2x5x4xf32>) -> tensor<2x5x3xf32> {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[Y:%.*]] = stablehlo.dot_general %arg1, %arg0, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, HIGHEST] : (tensor<2x5x4xf32>, tensor<2x3x4xf32>) -> tensor<2x5x3xf32>
  // CHECK-NEXT: return [[Y]]
  %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [HIGHEST, DEFAULT] : (tensor<2x3x4xf32>, tensor<2x5x4xf32>) -> tensor<2x3x5xf32>
  %1 = stablehlo.transpose %0, dims = [0, 2, 1] : (tensor<2x3x5xf32>) -> tensor<2x5x3xf32>
  return %1 : tensor<2x5x3xf32>
}

// -----

// Of a product that somebody else reads as it is, and one that moves a batch.
func.func @main(%x: tensor<3x4xf32>, %y: tensor<5x4xf32>, %z: tensor<2x3x4xf32>) -> (tensor<3x5xf32>, tensor<5x3xf32>, tensor<3x2x5xf32>) {
  // CHECK: stablehlo.dot_general %arg0, %arg1
  // CHECK: stablehlo.transpose {{.*}}, dims = [1, 0]
  // CHECK: stablehlo.dot_general %arg2, %arg1
  // CHECK: stablehlo.transpose {{.*}}, dims = [1, 0, 2]
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x5xf32>) -> tensor<5x3xf32>
  %2 = stablehlo.dot_general %z, %y, contracting_dims = [2] x [1] : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0, 2] : (tensor<2x3x5xf32>) -> tensor<3x2x5xf32>
  return %0, %1, %3 : tensor<3x5xf32>, tensor<5x3xf32>, tensor<3x2x5xf32>
}

// -----

// Into a convolution: image, kernel and result channels last, and the transposes around it gone.
func.func @main(%x: tensor<1x6x6x3xf32>, %k: tensor<2x2x3x4xf32>) -> tensor<1x3x3x4xf32> {
  // TOLERANCE: 1e-5
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[Y:%.*]] = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2]}
  // CHECK-NEXT: return [[Y]]
  %0 = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x6x6x3xf32>) -> tensor<1x3x6x6xf32>
  %1 = stablehlo.transpose %k, dims = [3, 2, 0, 1] : (tensor<2x2x3x4xf32>) -> tensor<4x3x2x2xf32>
  %2 = stablehlo.convolution(%0, %1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x6x6xf32>, tensor<4x3x2x2xf32>) -> tensor<1x4x3x3xf32>
  %3 = stablehlo.transpose %2, dims = [0, 2, 3, 1] : (tensor<1x4x3x3xf32>) -> tensor<1x3x3x4xf32>
  return %3 : tensor<1x3x3x4xf32>
}

// -----

// A convolution of which only the kernel is transposed, and whose result is read twice.
func.func @main(%x: tensor<1x3x6xf32>, %k: tensor<2x3x4xf32>) -> (tensor<1x4x5xf32>, tensor<1x5x4xf32>) {
  // TOLERANCE: 1e-5
  // CHECK: stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0]x[0, i, o]->[b, f, 0]
  // CHECK: stablehlo.transpose
  %0 = stablehlo.transpose %k, dims = [2, 1, 0] : (tensor<2x3x4xf32>) -> tensor<4x3x2xf32>
  %1 = stablehlo.convolution(%x, %0) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x6xf32>, tensor<4x3x2xf32>) -> tensor<1x4x5xf32>
  %2 = stablehlo.transpose %1, dims = [0, 2, 1] : (tensor<1x4x5xf32>) -> tensor<1x5x4xf32>
  return %1, %2 : tensor<1x4x5xf32>, tensor<1x5x4xf32>
}

// -----

// Transposes become one, or none.
func.func @main(%x: tensor<2x3x4xf32>) -> (tensor<4x2x3xf32>, tensor<2x3x4xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.transpose %arg0, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  // CHECK-NEXT: return [[X]], %arg0
  %0 = stablehlo.transpose %x, dims = [0, 2, 1] : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0, 2] : (tensor<2x4x3xf32>) -> tensor<4x2x3xf32>
  %2 = stablehlo.transpose %1, dims = [1, 2, 0] : (tensor<4x2x3xf32>) -> tensor<2x3x4xf32>
  return %1, %2 : tensor<4x2x3xf32>, tensor<2x3x4xf32>
}

// -----

// What only moves dimensions of size one is a reshape; a splat has no order.
func.func @main(%x: tensor<3x1x4xf32>) -> (tensor<1x3x4xf32>, tensor<4x1x3xf32>, tensor<3x2xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-DAG: [[ONES:%.*]] = stablehlo.constant dense<1.000000e+00> : tensor<3x2xf32>
  // CHECK-DAG: [[MOVED:%.*]] = stablehlo.reshape %arg0 : (tensor<3x1x4xf32>) -> tensor<1x3x4xf32>
  // CHECK-DAG: [[TURNED:%.*]] = stablehlo.transpose %arg0, dims = [2, 1, 0]
  // CHECK: return [[MOVED]], [[TURNED]], [[ONES]]
  %0 = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<3x1x4xf32>) -> tensor<1x3x4xf32>
  %1 = stablehlo.transpose %x, dims = [2, 1, 0] : (tensor<3x1x4xf32>) -> tensor<4x1x3xf32>
  %ones = stablehlo.constant dense<1.0> : tensor<2x3xf32>
  %2 = stablehlo.transpose %ones, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %0, %1, %2 : tensor<1x3x4xf32>, tensor<4x1x3xf32>, tensor<3x2xf32>
}

// -----

// A broadcast can put dimensions anywhere.
func.func @main(%x: tensor<3x4xf32>, %y: tensor<5xf32>) -> (tensor<4x2x3xf32>, tensor<5x6x2xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.broadcast_in_dim %arg0, dims = [2, 0] : (tensor<3x4xf32>) -> tensor<4x2x3xf32>
  // CHECK-NEXT: [[Y:%.*]] = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<5xf32>) -> tensor<5x6x2xf32>
  // CHECK-NEXT: return [[X]], [[Y]]
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 2] : (tensor<4x3xf32>) -> tensor<4x2x3xf32>
  %2 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<5xf32>) -> tensor<2x5x6xf32>
  %3 = stablehlo.transpose %2, dims = [1, 2, 0] : (tensor<2x5x6xf32>) -> tensor<5x6x2xf32>
  return %1, %3 : tensor<4x2x3xf32>, tensor<5x6x2xf32>
}

// -----

// Past elementwise operations to where they meet: a scale, a bias, a choice, and back.
func.func @main(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>, %bias: tensor<3xf32>, %p: tensor<i1>) -> tensor<3x4xf32> {
  // CHECK-LABEL: func.func @main
  // CHECK-NOT: stablehlo.transpose
  // CHECK: stablehlo.broadcast_in_dim %arg2, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>
  // CHECK-NOT: stablehlo.transpose
  // CHECK: chlo.erf {{.*}} : tensor<3x4xf32>
  // CHECK-NOT: stablehlo.transpose
  %two = stablehlo.constant dense<2.0> : tensor<4x3xf32>
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.multiply %two, %0 : tensor<4x3xf32>
  %2 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
  %3 = stablehlo.add %1, %2 : tensor<4x3xf32>
  %4 = stablehlo.transpose %y, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %5 = stablehlo.select %p, %3, %4 : tensor<i1>, tensor<4x3xf32>
  %6 = chlo.erf %5 : tensor<4x3xf32> -> tensor<4x3xf32>
  %7 = stablehlo.multiply %6, %6 : tensor<4x3xf32>
  %8 = stablehlo.compare LT, %7, %two : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xi1>
  %9 = stablehlo.convert %8 : (tensor<4x3xi1>) -> tensor<4x3xf32>
  %10 = stablehlo.transpose %9, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
  return %10 : tensor<3x4xf32>
}

// -----

// Not past an operand in another order, and not where somebody else wants the transpose.
func.func @main(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.transpose %arg0
  // CHECK-NEXT: [[SUM:%.*]] = stablehlo.add [[X]], %arg1
  // CHECK-NEXT: [[Y:%.*]] = stablehlo.transpose %arg1
  // CHECK-NEXT: [[E:%.*]] = stablehlo.exponential [[Y]]
  // CHECK-NEXT: return [[SUM]], [[Y]], [[E]]
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.add %0, %y : tensor<4x4xf32>
  %2 = stablehlo.transpose %y, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = stablehlo.exponential %2 : tensor<4x4xf32>
  return %1, %2, %3 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Past a reshape that only drops and adds dimensions of size one, to the product behind it.
func.func @main(%x: tensor<1x5x2x4xf32>, %w: tensor<2x4x3xf32>) -> tensor<2x5x3xf32> {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.reshape %arg0 : (tensor<1x5x2x4xf32>) -> tensor<5x2x4xf32>
  // CHECK-NEXT: [[T:%.*]] = stablehlo.transpose [[X]], dims = [1, 0, 2]
  // CHECK-NEXT: stablehlo.dot_general [[T]], %arg1
  %0 = stablehlo.transpose %x, dims = [0, 2, 1, 3] : (tensor<1x5x2x4xf32>) -> tensor<1x2x5x4xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x2x5x4xf32>) -> tensor<2x5x4xf32>
  %2 = stablehlo.dot_general %1, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x5x4xf32>, tensor<2x4x3xf32>) -> tensor<2x5x3xf32>
  return %2 : tensor<2x5x3xf32>
}

// -----

// A reshape that merges dimensions stays behind its transpose; so does one whose transpose somebody else reads.
func.func @main(%x: tensor<2x5x4xf32>, %y: tensor<3x4xf32>) -> (tensor<5x8xf32>, tensor<4x3xf32>, tensor<4x1x3xf32>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.transpose %arg0, dims = [1, 0, 2]
  // CHECK-NEXT: stablehlo.reshape [[X]]
  // CHECK-NEXT: [[Y:%.*]] = stablehlo.transpose %arg1, dims = [1, 0]
  // CHECK-NEXT: stablehlo.reshape [[Y]]
  %0 = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<2x5x4xf32>) -> tensor<5x2x4xf32>
  %1 = stablehlo.reshape %0 : (tensor<5x2x4xf32>) -> tensor<5x8xf32>
  %2 = stablehlo.transpose %y, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %3 = stablehlo.reshape %2 : (tensor<4x3xf32>) -> tensor<4x1x3xf32>
  return %1, %2, %3 : tensor<5x8xf32>, tensor<4x3xf32>, tensor<4x1x3xf32>
}

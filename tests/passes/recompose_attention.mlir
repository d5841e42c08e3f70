// RUN: tpuc opt --passes 'recompose-norms,recompose-attention' --target v5p %s | filecheck %s

// A mask that is added to scaled scores.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.composite "tpuc.attention" %arg0, %arg1, %arg2, %arg3
// CHECK-SAME: scale = 2.500000e-01 : f64
// CHECK-SAME: decomposition = @tpuc.attention.0
// CHECK: func.func private @tpuc.attention.0
func.func @main(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x5x8xf32>, %v: tensor<2x3x5x8xf32>,
    %mask: tensor<2x3x4x5xf32>) -> tensor<2x3x4x8xf32> {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<2x3x4x8xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x5xf32>
  %c = stablehlo.constant dense<0.25> : tensor<2x3x4x5xf32>
  %scaled = stablehlo.multiply %product, %c : tensor<2x3x4x5xf32>
  %scores = stablehlo.add %mask, %scaled : tensor<2x3x4x5xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%scores init: %min) applies stablehlo.maximum across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %shifted = stablehlo.subtract %scores, %peaks : tensor<2x3x4x5xf32>
  %exp = stablehlo.exponential %shifted : tensor<2x3x4x5xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<2x3x4x5xf32>
  %out = stablehlo.dot_general %weights, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<2x3x4x5xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x8xf32>
  return %out : tensor<2x3x4x8xf32>
}

// -----

// No scale, a division, a mask that selects minus infinity; batches in one dimension; keys by columns, values transposed.
// CHECK-LABEL: func.func @main
// CHECK: %[[KEY:.*]] = stablehlo.transpose %arg1, dims = [0, 2, 1]
// CHECK: stablehlo.composite "tpuc.attention"
// CHECK-SAME: scale = 2.000000e+00 : f64
// CHECK-SAME: (tensor<1x6x4x8xf32>, tensor<1x6x5x8xf32>, tensor<1x6x5x8xf32>, tensor<1x6x4x5xi1>) -> tensor<1x6x4x8xf32>
// CHECK-NOT: stablehlo.exponential
// CHECK: func.func private
func.func @main(%q: tensor<6x4x8xf32>, %k: tensor<6x8x5xf32>, %v: tensor<5x6x8xf32>,
    %mask: tensor<6x4x5xi1>) -> tensor<6x4x8xf32> {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<6x4x8xf32>, tensor<6x8x5xf32>) -> tensor<6x4x5xf32>
  %c = stablehlo.constant dense<0.5> : tensor<6x4x5xf32>
  %scaled = stablehlo.divide %product, %c : tensor<6x4x5xf32>
  %hidden = stablehlo.constant dense<0xFF800000> : tensor<6x4x5xf32>
  %columns = stablehlo.iota dim = 2 : tensor<6x4x5xi32>
  %0 = stablehlo.constant dense<0> : tensor<6x4x5xi32>
  %first = stablehlo.compare EQ, %columns, %0 : (tensor<6x4x5xi32>, tensor<6x4x5xi32>) -> tensor<6x4x5xi1>
  %stays = stablehlo.or %mask, %first : tensor<6x4x5xi1>
  %scores = stablehlo.select %stays, %scaled, %hidden : tensor<6x4x5xi1>, tensor<6x4x5xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%scores init: %min) applies stablehlo.maximum across dimensions = [2]
      : (tensor<6x4x5xf32>, tensor<f32>) -> tensor<6x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1] : (tensor<6x4xf32>) -> tensor<6x4x5xf32>
  %shifted = stablehlo.subtract %scores, %peaks : tensor<6x4x5xf32>
  %exp = stablehlo.exponential %shifted : tensor<6x4x5xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [2]
      : (tensor<6x4x5xf32>, tensor<f32>) -> tensor<6x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : (tensor<6x4xf32>) -> tensor<6x4x5xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<6x4x5xf32>
  %out = stablehlo.dot_general %weights, %v, batching_dims = [0] x [1], contracting_dims = [2] x [0]
      : (tensor<6x4x5xf32>, tensor<5x6x8xf32>) -> tensor<6x4x8xf32>
  return %out : tensor<6x4x8xf32>
}

// -----

// masked_fill with the least number, which leaves a row that is hidden whole its mean; the mask is the same for all heads.
// CHECK-LABEL: func.func @main
// CHECK: %[[HIDES:.*]] = stablehlo.or
// CHECK: %[[STAYS:.*]] = stablehlo.not %[[HIDES]] : tensor<1x1x4x5xi1>
// CHECK: %[[ADDED:.*]] = stablehlo.select %[[STAYS]], %{{.*}}, %{{.*}} : tensor<1x1x4x5xi1>, tensor<1x1x4x5xf32>
// CHECK: %[[MASK:.*]] = stablehlo.broadcast_in_dim %[[ADDED]]
// CHECK: stablehlo.composite "tpuc.attention" %arg0, %arg1, %arg2, %[[MASK]]
// CHECK-NOT: stablehlo.exponential
// CHECK: func.func private
func.func @main(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x5x8xf32>, %v: tensor<2x3x5x8xf32>,
    %hides: tensor<1x1x4x5xi1>) -> tensor<2x3x4x8xf32> {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<2x3x4x8xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x5xf32>
  %rows = stablehlo.iota dim = 2 : tensor<1x1x4x5xi32>
  %0 = stablehlo.constant dense<0> : tensor<1x1x4x5xi32>
  %first = stablehlo.compare EQ, %rows, %0 : (tensor<1x1x4x5xi32>, tensor<1x1x4x5xi32>) -> tensor<1x1x4x5xi1>
  %all = stablehlo.or %hides, %first : tensor<1x1x4x5xi1>
  %mask = stablehlo.broadcast_in_dim %all, dims = [0, 1, 2, 3] : (tensor<1x1x4x5xi1>) -> tensor<2x3x4x5xi1>
  %hidden = stablehlo.constant dense<-3.40282347E+38> : tensor<2x3x4x5xf32>
  %scores = stablehlo.select %mask, %hidden, %product : tensor<2x3x4x5xi1>, tensor<2x3x4x5xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%scores init: %min) applies stablehlo.maximum across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %shifted = stablehlo.subtract %scores, %peaks : tensor<2x3x4x5xf32>
  %exp = stablehlo.exponential %shifted : tensor<2x3x4x5xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<2x3x4x5xf32>
  %out = stablehlo.dot_general %weights, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<2x3x4x5xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x8xf32>
  return %out : tensor<2x3x4x8xf32>
}

// -----

// A number that hides nothing.
// CHECK-LABEL: func.func @main
// CHECK-NOT: tpuc.attention
func.func @main(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x5x8xf32>, %v: tensor<2x3x5x8xf32>,
    %hides: tensor<1x1x4x5xi1>) -> tensor<2x3x4x8xf32> {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<2x3x4x8xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x5xf32>
  %mask = stablehlo.broadcast_in_dim %hides, dims = [0, 1, 2, 3] : (tensor<1x1x4x5xi1>) -> tensor<2x3x4x5xi1>
  %hidden = stablehlo.constant dense<-1.0> : tensor<2x3x4x5xf32>
  %scores = stablehlo.select %mask, %product, %hidden : tensor<2x3x4x5xi1>, tensor<2x3x4x5xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%scores init: %min) applies stablehlo.maximum across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %shifted = stablehlo.subtract %scores, %peaks : tensor<2x3x4x5xf32>
  %exp = stablehlo.exponential %shifted : tensor<2x3x4x5xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<2x3x4x5xf32>
  %out = stablehlo.dot_general %weights, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<2x3x4x5xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x8xf32>
  return %out : tensor<2x3x4x8xf32>
}

// -----

// bf16, with the softmax in f32.
// TOLERANCE: 3e-2
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.composite "tpuc.attention" %arg0, %arg1, %arg2
// CHECK-SAME: (tensor<2x3x4x8xbf16>, tensor<2x3x5x8xbf16>, tensor<2x3x5x8xbf16>) -> tensor<2x3x4x8xbf16>
func.func @main(%q: tensor<2x3x4x8xbf16>, %k: tensor<2x3x5x8xbf16>,
    %v: tensor<2x3x5x8xbf16>) -> tensor<2x3x4x8xbf16> {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<2x3x4x8xbf16>, tensor<2x3x5x8xbf16>) -> tensor<2x3x4x5xbf16>
  %c = stablehlo.constant dense<0.25> : tensor<2x3x4x5xbf16>
  %scaled = stablehlo.multiply %product, %c : tensor<2x3x4x5xbf16>
  %scores = stablehlo.convert %scaled : (tensor<2x3x4x5xbf16>) -> tensor<2x3x4x5xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%scores init: %min) applies stablehlo.maximum across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %shifted = stablehlo.subtract %scores, %peaks : tensor<2x3x4x5xf32>
  %exp = stablehlo.exponential %shifted : tensor<2x3x4x5xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<2x3x4x5xf32>
  %narrow = stablehlo.convert %weights : (tensor<2x3x4x5xf32>) -> tensor<2x3x4x5xbf16>
  %out = stablehlo.dot_general %narrow, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<2x3x4x5xbf16>, tensor<2x3x5x8xbf16>) -> tensor<2x3x4x8xbf16>
  return %out : tensor<2x3x4x8xbf16>
}

// -----

// The weights are an output too: they are computed anyway.
// CHECK-LABEL: func.func @main
// CHECK-NOT: tpuc.attention
func.func @main(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x5x8xf32>, %v: tensor<2x3x5x8xf32>) -> (tensor<2x3x4x8xf32>, tensor<2x3x4x5xf32>) {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<2x3x4x8xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x5xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%product init: %min) applies stablehlo.maximum across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %shifted = stablehlo.subtract %product, %peaks : tensor<2x3x4x5xf32>
  %exp = stablehlo.exponential %shifted : tensor<2x3x4x5xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<2x3x4x5xf32>
  %out = stablehlo.dot_general %weights, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<2x3x4x5xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x8xf32>
  return %out, %weights : tensor<2x3x4x8xf32>, tensor<2x3x4x5xf32>
}

// -----

// A softmax over the columns.
// CHECK-LABEL: func.func @main
// CHECK-NOT: tpuc.attention
func.func @main(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x4x8xf32>, %v: tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32> {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%product init: %min) applies stablehlo.maximum across dimensions = [2]
      : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1, 3] : (tensor<2x3x4xf32>) -> tensor<2x3x4x4xf32>
  %shifted = stablehlo.subtract %product, %peaks : tensor<2x3x4x4xf32>
  %exp = stablehlo.exponential %shifted : tensor<2x3x4x4xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [2]
      : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 3] : (tensor<2x3x4xf32>) -> tensor<2x3x4x4xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<2x3x4x4xf32>
  %out = stablehlo.dot_general %weights, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<2x3x4x4xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  return %out : tensor<2x3x4x8xf32>
}

// -----

// Rows of a square, put back as columns.
// CHECK-LABEL: func.func @main
// CHECK-NOT: tpuc.attention
func.func @main(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x4x8xf32>, %v: tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32> {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%product init: %min) applies stablehlo.maximum across dimensions = [3]
      : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1, 3] : (tensor<2x3x4xf32>) -> tensor<2x3x4x4xf32>
  %shifted = stablehlo.subtract %product, %peaks : tensor<2x3x4x4xf32>
  %exp = stablehlo.exponential %shifted : tensor<2x3x4x4xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [3]
      : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 3] : (tensor<2x3x4xf32>) -> tensor<2x3x4x4xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<2x3x4x4xf32>
  %out = stablehlo.dot_general %weights, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<2x3x4x4xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  return %out : tensor<2x3x4x8xf32>
}

// -----

// A scale of its own for each head.
// CHECK-LABEL: func.func @main
// CHECK-NOT: tpuc.attention
func.func @main(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x5x8xf32>, %v: tensor<2x3x5x8xf32>,
    %scale: tensor<3xf32>) -> tensor<2x3x4x8xf32> {
  %product = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<2x3x4x8xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x5xf32>
  %scales = stablehlo.broadcast_in_dim %scale, dims = [1] : (tensor<3xf32>) -> tensor<2x3x4x5xf32>
  %scores = stablehlo.multiply %product, %scales : tensor<2x3x4x5xf32>
  %min = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%scores init: %min) applies stablehlo.maximum across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %shifted = stablehlo.subtract %scores, %peaks : tensor<2x3x4x5xf32>
  %exp = stablehlo.exponential %shifted : tensor<2x3x4x5xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [3]
      : (tensor<2x3x4x5xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
  %weights = stablehlo.divide %exp, %sums : tensor<2x3x4x5xf32>
  %out = stablehlo.dot_general %weights, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
      : (tensor<2x3x4x5xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x4x8xf32>
  return %out : tensor<2x3x4x8xf32>
}

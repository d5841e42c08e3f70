// RUN: tpuc opt --passes 'recompose-norms' --target v5p %s | filecheck %s

// A layer norm that divides by the root of a variance, of the form that keeps dimensions; its scale comes first.
// CHECK-LABEL: func.func @main
// CHECK: %[[NORM:.*]] = stablehlo.composite "tpuc.layer_norm" %arg0
// CHECK-SAME: {dimensions = [2], epsilon = {{9.9.*E-6|1.0.*e-05}} : f64}
// CHECK-SAME: decomposition = @tpuc.layer_norm.0
// CHECK: stablehlo.multiply %[[NORM]]
// CHECK-NOT: stablehlo.reduce
// CHECK: func.func private @tpuc.layer_norm.0
func.func @main(%x: tensor<2x4x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x4x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %count = stablehlo.constant dense<8.0> : tensor<2x4x1xf32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<2x4x1xf32>
  %two = stablehlo.constant dense<2.0> : tensor<2x4x8xf32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
  %1 = stablehlo.reshape %0 : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
  %2 = stablehlo.divide %1, %count : tensor<2x4x1xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
  %4 = stablehlo.subtract %x, %3 : tensor<2x4x8xf32>
  %5 = stablehlo.power %4, %two : tensor<2x4x8xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
  %7 = stablehlo.reshape %6 : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
  %8 = stablehlo.divide %7, %count : tensor<2x4x1xf32>
  %9 = stablehlo.add %epsilon, %8 : tensor<2x4x1xf32>
  %10 = stablehlo.sqrt %9 : tensor<2x4x1xf32>
  %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
  %12 = stablehlo.broadcast_in_dim %w, dims = [2] : (tensor<8xf32>) -> tensor<2x4x8xf32>
  %13 = stablehlo.multiply %12, %4 : tensor<2x4x8xf32>
  %14 = stablehlo.divide %13, %11 : tensor<2x4x8xf32>
  %15 = stablehlo.broadcast_in_dim %b, dims = [2] : (tensor<8xf32>) -> tensor<2x4x8xf32>
  %16 = stablehlo.add %14, %15 : tensor<2x4x8xf32>
  return %16 : tensor<2x4x8xf32>
}

// -----

// The scale is multiplied with the inverse deviation first.
// CHECK-LABEL: func.func @main
// CHECK: %[[NORM:.*]] = stablehlo.composite "tpuc.layer_norm" %arg0
// CHECK: stablehlo.multiply %[[NORM]]
// CHECK-NOT: stablehlo.reduce
// CHECK: func.func private
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xf32>
  %m.sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %m.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %m.mean = stablehlo.divide %m.sum, %m.count : tensor<4xf32>
  %ms = stablehlo.broadcast_in_dim %m.mean, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %c = stablehlo.subtract %x, %ms : tensor<4x8xf32>
  %cc = stablehlo.multiply %c, %c : tensor<4x8xf32>
  %v.sum = stablehlo.reduce(%cc init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %v.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %v.mean = stablehlo.divide %v.sum, %v.count : tensor<4xf32>
  %a = stablehlo.add %v.mean, %epsilon : tensor<4xf32>
  %r = stablehlo.rsqrt %a : tensor<4xf32>
  %rs = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %ws = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %rw = stablehlo.multiply %rs, %ws : tensor<4x8xf32>
  %y = stablehlo.multiply %c, %rw : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Over channels that come before the positions; one over the root, which is taken of copies.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "tpuc.layer_norm" %arg0
// CHECK-SAME: dimensions = [1]
// CHECK-NOT: stablehlo.reduce
// CHECK: func.func private
func.func @main(%x: tensor<2x8x3xf32>) -> tensor<2x8x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<2x3xf32>
  %m.sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<2x8x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %m.count = stablehlo.constant dense<8.0> : tensor<2x3xf32>
  %m.mean = stablehlo.divide %m.sum, %m.count : tensor<2x3xf32>
  %ms = stablehlo.broadcast_in_dim %m.mean, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x8x3xf32>
  %c = stablehlo.subtract %x, %ms : tensor<2x8x3xf32>
  %cc = stablehlo.multiply %c, %c : tensor<2x8x3xf32>
  %v.sum = stablehlo.reduce(%cc init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<2x8x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %v.count = stablehlo.constant dense<8.0> : tensor<2x3xf32>
  %v.mean = stablehlo.divide %v.sum, %v.count : tensor<2x3xf32>
  %a = stablehlo.add %v.mean, %epsilon : tensor<2x3xf32>
  %as = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x8x3xf32>
  %s = stablehlo.sqrt %as : tensor<2x8x3xf32>
  %one = stablehlo.constant dense<1.0> : tensor<2x8x3xf32>
  %r = stablehlo.divide %one, %s : tensor<2x8x3xf32>
  %y = stablehlo.multiply %r, %c : tensor<2x8x3xf32>
  return %y : tensor<2x8x3xf32>
}

// -----

// An RMS norm of a bf16 tensor, computed in f32; the mean multiplies, the root is a power.
// CHECK-LABEL: func.func @main
// CHECK: %[[WIDE:.*]] = stablehlo.convert %arg0
// CHECK: stablehlo.composite "tpuc.rms_norm" %[[WIDE]]
// CHECK-SAME: dimensions = [1]
// CHECK-NOT: stablehlo.reduce
// CHECK: func.func private
func.func @main(%narrow: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xf32>
  %x = stablehlo.convert %narrow : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %xx = stablehlo.multiply %x, %x : tensor<4x8xf32>
  %sum = stablehlo.reduce(%xx init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %eighth = stablehlo.constant dense<0.125> : tensor<4xf32>
  %mean = stablehlo.multiply %eighth, %sum : tensor<4xf32>
  %a = stablehlo.add %mean, %epsilon : tensor<4xf32>
  %exponent = stablehlo.constant dense<-0.5> : tensor<4xf32>
  %r = stablehlo.power %a, %exponent : tensor<4xf32>
  %rs = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.multiply %x, %rs : tensor<4x8xf32>
  %out = stablehlo.convert %y : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  return %out : tensor<4x8xbf16>
}

// -----

// The inverse deviation is an output too: it is computed anyway.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xf32>
  %m.sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %m.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %m.mean = stablehlo.divide %m.sum, %m.count : tensor<4xf32>
  %ms = stablehlo.broadcast_in_dim %m.mean, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %c = stablehlo.subtract %x, %ms : tensor<4x8xf32>
  %cc = stablehlo.multiply %c, %c : tensor<4x8xf32>
  %v.sum = stablehlo.reduce(%cc init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %v.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %v.mean = stablehlo.divide %v.sum, %v.count : tensor<4xf32>
  %a = stablehlo.add %v.mean, %epsilon : tensor<4xf32>
  %r = stablehlo.rsqrt %a : tensor<4xf32>
  %rs = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.multiply %c, %rs : tensor<4x8xf32>
  return %y, %r : tensor<4x8xf32>, tensor<4xf32>
}

// -----

// The epsilon is added to the deviation.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xf32>
  %m.sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %m.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %m.mean = stablehlo.divide %m.sum, %m.count : tensor<4xf32>
  %ms = stablehlo.broadcast_in_dim %m.mean, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %c = stablehlo.subtract %x, %ms : tensor<4x8xf32>
  %cc = stablehlo.multiply %c, %c : tensor<4x8xf32>
  %v.sum = stablehlo.reduce(%cc init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %v.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %v.mean = stablehlo.divide %v.sum, %v.count : tensor<4xf32>
  %s = stablehlo.sqrt %v.mean : tensor<4xf32>
  %a = stablehlo.add %s, %epsilon : tensor<4xf32>
  %as = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.divide %c, %as : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// The variance is over N - 1.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xf32>
  %m.sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %m.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %m.mean = stablehlo.divide %m.sum, %m.count : tensor<4xf32>
  %ms = stablehlo.broadcast_in_dim %m.mean, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %c = stablehlo.subtract %x, %ms : tensor<4x8xf32>
  %cc = stablehlo.multiply %c, %c : tensor<4x8xf32>
  %v.sum = stablehlo.reduce(%cc init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %v.count = stablehlo.constant dense<7.0> : tensor<4xf32>
  %v.mean = stablehlo.divide %v.sum, %v.count : tensor<4xf32>
  %a = stablehlo.add %v.mean, %epsilon : tensor<4xf32>
  %r = stablehlo.rsqrt %a : tensor<4xf32>
  %rs = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.multiply %c, %rs : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// The statistics of the rows of a square are put back as columns.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xf32>
  %xx = stablehlo.multiply %x, %x : tensor<4x4xf32>
  %v.sum = stablehlo.reduce(%xx init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %v.count = stablehlo.constant dense<4.0> : tensor<4xf32>
  %v.mean = stablehlo.divide %v.sum, %v.count : tensor<4xf32>
  %a = stablehlo.add %v.mean, %epsilon : tensor<4xf32>
  %r = stablehlo.rsqrt %a : tensor<4xf32>
  %rs = stablehlo.broadcast_in_dim %r, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %y = stablehlo.multiply %x, %rs : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

// The variance is mean(x * x) - mean(x) * mean(x), which is another number where the mean is large.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xf32>
  %m.sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %m.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %m.mean = stablehlo.divide %m.sum, %m.count : tensor<4xf32>
  %ms = stablehlo.broadcast_in_dim %m.mean, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %c = stablehlo.subtract %x, %ms : tensor<4x8xf32>
  %xx = stablehlo.multiply %x, %x : tensor<4x8xf32>
  %q.sum = stablehlo.reduce(%xx init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %q.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %q.mean = stablehlo.divide %q.sum, %q.count : tensor<4xf32>
  %mm = stablehlo.multiply %m.mean, %m.mean : tensor<4xf32>
  %v = stablehlo.subtract %q.mean, %mm : tensor<4xf32>
  %a = stablehlo.add %v, %epsilon : tensor<4xf32>
  %r = stablehlo.rsqrt %a : tensor<4xf32>
  %rs = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.multiply %c, %rs : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// The statistics are in bf16.
// TOLERANCE: 3e-2
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  %zero = stablehlo.constant dense<0.0> : tensor<bf16>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xbf16>
  %xx = stablehlo.multiply %x, %x : tensor<4x8xbf16>
  %v.sum = stablehlo.reduce(%xx init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xbf16>, tensor<bf16>) -> tensor<4xbf16>
  %v.count = stablehlo.constant dense<8.0> : tensor<4xbf16>
  %v.mean = stablehlo.divide %v.sum, %v.count : tensor<4xbf16>
  %a = stablehlo.add %v.mean, %epsilon : tensor<4xbf16>
  %r = stablehlo.rsqrt %a : tensor<4xbf16>
  %rs = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4xbf16>) -> tensor<4x8xbf16>
  %y = stablehlo.multiply %x, %rs : tensor<4x8xbf16>
  return %y : tensor<4x8xbf16>
}

// -----

// The mean that is subtracted is of the columns, the deviation of the rows.
// CHECK-LABEL: func.func @main
// CHECK-NOT: layer_norm
// CHECK: stablehlo.composite "tpuc.rms_norm"
// CHECK-NOT: layer_norm
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %epsilon = stablehlo.constant dense<1.0e-05> : tensor<4xf32>
  %m.sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<8xf32>
  %m.count = stablehlo.constant dense<4.0> : tensor<8xf32>
  %m.mean = stablehlo.divide %m.sum, %m.count : tensor<8xf32>
  %ms = stablehlo.broadcast_in_dim %m.mean, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %c = stablehlo.subtract %x, %ms : tensor<4x8xf32>
  %cc = stablehlo.multiply %c, %c : tensor<4x8xf32>
  %v.sum = stablehlo.reduce(%cc init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %v.count = stablehlo.constant dense<8.0> : tensor<4xf32>
  %v.mean = stablehlo.divide %v.sum, %v.count : tensor<4xf32>
  %a = stablehlo.add %v.mean, %epsilon : tensor<4xf32>
  %r = stablehlo.rsqrt %a : tensor<4xf32>
  %rs = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.multiply %c, %rs : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// A softmax that divides.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "tpuc.softmax" %arg0
// CHECK-SAME: dimensions = [1]
// CHECK-NOT: stablehlo.exponential
// CHECK: func.func private @tpuc.softmax.0
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%x init: %lowest) applies stablehlo.maximum across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %shifted = stablehlo.subtract %x, %peaks : tensor<4x8xf32>
  %e = stablehlo.exponential %shifted : tensor<4x8xf32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.divide %e, %sums : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// A softmax that multiplies with one over the sum.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "tpuc.softmax" %arg0
// CHECK-SAME: dimensions = [1]
// CHECK-NOT: stablehlo.exponential
// CHECK: func.func private @tpuc.softmax.0
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%x init: %lowest) applies stablehlo.maximum across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %shifted = stablehlo.subtract %x, %peaks : tensor<4x8xf32>
  %e = stablehlo.exponential %shifted : tensor<4x8xf32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4xf32>
  %i = stablehlo.divide %one, %sum : tensor<4xf32>
  %is = stablehlo.broadcast_in_dim %i, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.multiply %e, %is : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// The exponential of a log-softmax, over columns.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "tpuc.softmax" %arg0
// CHECK-SAME: dimensions = [0]
// CHECK-NOT: stablehlo.exponential
// CHECK: func.func private @tpuc.softmax.0
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%x init: %lowest) applies stablehlo.maximum across dimensions = [0] : (tensor<4x8xf32>, tensor<f32>) -> tensor<8xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %shifted = stablehlo.subtract %x, %peaks : tensor<4x8xf32>
  %e = stablehlo.exponential %shifted : tensor<4x8xf32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4x8xf32>, tensor<f32>) -> tensor<8xf32>
  %l = stablehlo.log %sum : tensor<8xf32>
  %ls = stablehlo.broadcast_in_dim %l, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %shifted, %ls : tensor<4x8xf32>
  %y = stablehlo.exponential %d : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// The sum is over another dimension than the maximum.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%x init: %lowest) applies stablehlo.maximum across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %shifted = stablehlo.subtract %x, %peaks : tensor<4x4xf32>
  %e = stablehlo.exponential %shifted : tensor<4x4xf32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %y = stablehlo.divide %e, %sums : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

// The logarithm of the sum is an output too.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %peak = stablehlo.reduce(%x init: %lowest) applies stablehlo.maximum across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %peaks = stablehlo.broadcast_in_dim %peak, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %shifted = stablehlo.subtract %x, %peaks : tensor<4x8xf32>
  %e = stablehlo.exponential %shifted : tensor<4x8xf32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = stablehlo.divide %e, %sums : tensor<4x8xf32>
  %l = stablehlo.log %sum : tensor<4xf32>
  return %y, %l : tensor<4x8xf32>, tensor<4xf32>
}

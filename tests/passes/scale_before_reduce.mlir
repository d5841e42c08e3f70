// RUN: tpuc opt --passes 'scale-before-reduce' %s | filecheck %s

// A mean, as a division.
func.func @main(%x: tensor<3x8xf32>) -> tensor<3xf32> {
  // CHECK:      [[SCALE:%.*]] = stablehlo.constant dense<1.250000e-01> : tensor<3x8xf32>
  // CHECK-NEXT: [[SCALED:%.*]] = stablehlo.multiply %arg0, [[SCALE]]
  // CHECK-NEXT: [[MEAN:%.*]] = stablehlo.reduce([[SCALED]] init: {{.*}}) applies stablehlo.add across dimensions = [1]
  // CHECK-NEXT: return [[MEAN]]
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  %eight = stablehlo.constant dense<8.0> : tensor<3xf32>
  %1 = stablehlo.divide %0, %eight : tensor<3xf32>
  return %1 : tensor<3xf32>
}

// -----

// A mean that keeps the dimension, as a multiplication from either side.
func.func @main(%x: tensor<3x6xf64>, %y: tensor<3x6xf64>) -> (tensor<3x1xf64>, tensor<3x1xf64>) {
  // CHECK:      stablehlo.multiply %arg0
  // CHECK-NEXT: [[SUM:%.*]] = stablehlo.reduce
  // CHECK-NEXT: [[LEFT:%.*]] = stablehlo.reshape [[SUM]] : (tensor<3xf64>) -> tensor<3x1xf64>
  // CHECK:      stablehlo.multiply %arg1
  // CHECK-NEXT: [[SUM:%.*]] = stablehlo.reduce
  // CHECK-NEXT: [[RIGHT:%.*]] = stablehlo.reshape [[SUM]] : (tensor<3xf64>) -> tensor<3x1xf64>
  // CHECK-NEXT: return [[LEFT]], [[RIGHT]]
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %sixth = stablehlo.constant dense<0.16666666666666666> : tensor<3x1xf64>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x6xf64>, tensor<f64>) -> tensor<3xf64>
  %1 = stablehlo.reshape %0 : (tensor<3xf64>) -> tensor<3x1xf64>
  %2 = stablehlo.multiply %1, %sixth : tensor<3x1xf64>
  %3 = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x6xf64>, tensor<f64>) -> tensor<3xf64>
  %4 = stablehlo.reshape %3 : (tensor<3xf64>) -> tensor<3x1xf64>
  %5 = stablehlo.multiply %sixth, %4 : tensor<3x1xf64>
  return %2, %5 : tensor<3x1xf64>, tensor<3x1xf64>
}

// -----

// Another reader wants the sum itself.
func.func @main(%x: tensor<3x8xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  // CHECK: stablehlo.reduce(%arg0
  // CHECK: stablehlo.divide
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  %eight = stablehlo.constant dense<8.0> : tensor<3xf32>
  %1 = stablehlo.divide %0, %eight : tensor<3xf32>
  return %0, %1 : tensor<3xf32>, tensor<3xf32>
}

// -----

// A maximum, a sum that starts elsewhere, a factor that is no constant, and the sum as a divisor.
func.func @main(%x: tensor<3x8xf32>, %s: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  // CHECK-COUNT-4: stablehlo.reduce(%arg0
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %eight = stablehlo.constant dense<8.0> : tensor<3xf32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  %1 = stablehlo.divide %0, %eight : tensor<3xf32>
  %2 = stablehlo.reduce(%x init: %one) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  %3 = stablehlo.divide %2, %eight : tensor<3xf32>
  %4 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  %5 = stablehlo.multiply %4, %s : tensor<3xf32>
  %6 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  %7 = stablehlo.divide %eight, %6 : tensor<3xf32>
  return %1, %3, %5, %7 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// -----

// One more rounding of each element is too much for bf16, and integers do not divide that way.
func.func @main(%x: tensor<3x8xbf16>, %n: tensor<3x8xi32>) -> (tensor<3xbf16>, tensor<3xi32>) {
  // TOLERANCE: 1e-2
  // CHECK: stablehlo.reduce(%arg0
  // CHECK: stablehlo.reduce(%arg1
  %zero = stablehlo.constant dense<0.0> : tensor<bf16>
  %eight = stablehlo.constant dense<8.0> : tensor<3xbf16>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xbf16>, tensor<bf16>) -> tensor<3xbf16>
  %1 = stablehlo.divide %0, %eight : tensor<3xbf16>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<3xi32>
  %2 = stablehlo.reduce(%n init: %none) applies stablehlo.add across dimensions = [1] : (tensor<3x8xi32>, tensor<i32>) -> tensor<3xi32>
  %3 = stablehlo.divide %2, %two : tensor<3xi32>
  return %1, %3 : tensor<3xbf16>, tensor<3xi32>
}

// -----

// A factor of zero, and one that would push elements out of range.
func.func @main(%x: tensor<3x8xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  // CHECK-COUNT-2: stablehlo.reduce(%arg0
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  %nothing = stablehlo.constant dense<0.0> : tensor<3xf32>
  %1 = stablehlo.divide %0, %nothing : tensor<3xf32>
  %2 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  %huge = stablehlo.constant dense<1.0e37> : tensor<3xf32>
  %3 = stablehlo.multiply %2, %huge : tensor<3xf32>
  return %1, %3 : tensor<3xf32>, tensor<3xf32>
}

// RUN: tpuc opt --passes 'fold-constants' %s | filecheck %s

// A scalar as torch-mlir passes it: rounded once, and as large as it is needed.
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK:      [[EPSILON:%.*]] = stablehlo.constant dense<9.99999974E-6> : tensor<4x8xf32>
  // CHECK-NEXT: stablehlo.add %arg0, [[EPSILON]]
  %0 = stablehlo.constant dense<1.0e-5> : tensor<1xf64>
  %1 = stablehlo.convert %0 : (tensor<1xf64>) -> tensor<1xf32>
  %2 = stablehlo.reshape %1 : (tensor<1xf32>) -> tensor<f32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  %4 = stablehlo.add %x, %3 : tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}

// -----

// Equal elements are evaluated once, whatever the size.
func.func @main() -> (tensor<50x50xf32>, tensor<50x50xi1>, tensor<50x50xi32>) {
  // CHECK-DAG: [[ROOT:%.*]] = stablehlo.constant dense<5.000000e-01> : tensor<50x50xf32>
  // CHECK-DAG: [[LESS:%.*]] = stablehlo.constant dense<true> : tensor<50x50xi1>
  // CHECK-DAG: [[CHOSEN:%.*]] = stablehlo.constant dense<7> : tensor<50x50xi32>
  // CHECK-NEXT: return [[ROOT]], [[LESS]], [[CHOSEN]]
  %four = stablehlo.constant dense<4.0> : tensor<50x50xf32>
  %root = stablehlo.rsqrt %four : tensor<50x50xf32>
  %less = stablehlo.compare LT, %root, %four : (tensor<50x50xf32>, tensor<50x50xf32>) -> tensor<50x50xi1>
  %seven = stablehlo.constant dense<7> : tensor<50x50xi32>
  %eight = stablehlo.constant dense<8> : tensor<50x50xi32>
  %chosen = stablehlo.select %less, %seven, %eight : tensor<50x50xi1>, tensor<50x50xi32>
  return %root, %less, %chosen : tensor<50x50xf32>, tensor<50x50xi1>, tensor<50x50xi32>
}

// -----

// Different elements are evaluated one by one: integers divide towards zero, floats keep their special values.
func.func @main() -> (tensor<3xi64>, tensor<4xf32>, tensor<3xi8>, tensor<2x2xbf16>) {
  // CHECK-DAG: [[QUOTIENT:%.*]] = stablehlo.constant dense<[-3, 0, 3]> : tensor<3xi64>
  // CHECK-DAG: [[FLOATS:%.*]] = stablehlo.constant dense<[0xFF800000, 0x7F800000, -0.000000e+00, 0xFFC00000]> : tensor<4xf32>
  // CHECK-DAG: [[WRAPPED:%.*]] = stablehlo.constant dense<[-128, 127, 5]> : tensor<3xi8>
  // CHECK-DAG: [[MOVED:%.*]] = stablehlo.constant dense<{{\[\[}}1.000000e+00, 3.000000e+00], [2.000000e+00, 4.000000e+00]]> : tensor<2x2xbf16>
  // CHECK: return [[QUOTIENT]], [[FLOATS]], [[WRAPPED]], [[MOVED]]
  %a = stablehlo.constant dense<[-7, 1, 7]> : tensor<3xi64>
  %b = stablehlo.constant dense<2> : tensor<3xi64>
  %0 = stablehlo.divide %a, %b : tensor<3xi64>
  %c = stablehlo.constant dense<[0x7F800000, 0xFF800000, 0.0, 0x7FC00000]> : tensor<4xf32>
  %1 = stablehlo.negate %c : tensor<4xf32>
  %2 = stablehlo.abs %1 : tensor<4xf32>
  %3 = stablehlo.maximum %2, %1 : tensor<4xf32>
  %4 = stablehlo.minimum %1, %3 : tensor<4xf32>
  %d = stablehlo.constant dense<[127, 126, 4]> : tensor<3xi8>
  %e = stablehlo.constant dense<1> : tensor<3xi8>
  %5 = stablehlo.add %d, %e : tensor<3xi8>
  %f = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xbf16>
  %6 = stablehlo.transpose %f, dims = [1, 0] : (tensor<2x2xbf16>) -> tensor<2x2xbf16>
  return %0, %4, %5, %6 : tensor<3xi64>, tensor<4xf32>, tensor<3xi8>, tensor<2x2xbf16>
}

// -----

// Placing: equal elements stay equal, others are placed one by one.
func.func @main() -> (tensor<2x3xi32>, tensor<4xi32>, tensor<4xi32>) {
  // CHECK-DAG: [[ROWS:%.*]] = stablehlo.constant dense<{{\[\[}}1, 2, 3], [1, 2, 3]]> : tensor<2x3xi32>
  // CHECK-DAG: [[SAME:%.*]] = stablehlo.constant dense<5> : tensor<4xi32>
  // CHECK-DAG: [[MIXED:%.*]] = stablehlo.constant dense<[5, 5, 6, 6]> : tensor<4xi32>
  // CHECK: return [[ROWS]], [[SAME]], [[MIXED]]
  %0 = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<3xi32>) -> tensor<2x3xi32>
  %five = stablehlo.constant dense<5> : tensor<2xi32>
  %six = stablehlo.constant dense<6> : tensor<2xi32>
  %2 = stablehlo.concatenate %five, %five, dim = 0 : (tensor<2xi32>, tensor<2xi32>) -> tensor<4xi32>
  %3 = stablehlo.concatenate %five, %six, dim = 0 : (tensor<2xi32>, tensor<2xi32>) -> tensor<4xi32>
  return %1, %2, %3 : tensor<2x3xi32>, tensor<4xi32>, tensor<4xi32>
}

// -----

// An iota along a dimension of size one counts nothing.
func.func @main() -> (tensor<1x4xi64>, tensor<1x4xi64>) {
  // CHECK: stablehlo.constant dense<0> : tensor<1x4xi64>
  // CHECK: stablehlo.iota dim = 1 : tensor<1x4xi64>
  %0 = stablehlo.iota dim = 0 : tensor<1x4xi64>
  %1 = stablehlo.iota dim = 1 : tensor<1x4xi64>
  return %0, %1 : tensor<1x4xi64>, tensor<1x4xi64>
}

// -----

// An integer division by zero, which nothing here could evaluate, is left alone; one of floats is infinite.
func.func @main() -> tensor<2xf32> {
  // CHECK: stablehlo.constant dense<0x7F800000> : tensor<2xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<2xf32>
  %one = stablehlo.constant dense<1.0> : tensor<2xf32>
  %infinity = stablehlo.divide %one, %zero : tensor<2xf32>
  return %infinity : tensor<2xf32>
}
func.func @not_evaluated() -> (tensor<2xi32>, tensor<2xi32>) {
  // CHECK: stablehlo.divide {{.*}} : tensor<2xi32>
  // CHECK: stablehlo.remainder {{.*}} : tensor<2xi32>
  %zero = stablehlo.constant dense<0> : tensor<2xi32>
  %mixed = stablehlo.constant dense<[0, 1]> : tensor<2xi32>
  %one = stablehlo.constant dense<1> : tensor<2xi32>
  %0 = stablehlo.divide %one, %zero : tensor<2xi32>
  %1 = stablehlo.remainder %one, %mixed : tensor<2xi32>
  return %0, %1 : tensor<2xi32>, tensor<2xi32>
}

// -----

// What is not constant stays, and so do complex numbers, which the bindings cannot read.
func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xcomplex<f32>>) {
  // CHECK: stablehlo.add %arg0
  // CHECK: stablehlo.complex
  %one = stablehlo.constant dense<1.0> : tensor<2xf32>
  %0 = stablehlo.add %x, %one : tensor<2xf32>
  %1 = stablehlo.complex %one, %one : tensor<2xcomplex<f32>>
  return %0, %1 : tensor<2xf32>, tensor<2xcomplex<f32>>
}

// RUN: tpuc opt --passes 'narrow-f64' %s | filecheck %s

// A variance as torch-mlir makes it: one operator, one location.
func.func @main(%x: tensor<3x8xf32>) -> tensor<3xf32> {
  // TOLERANCE: 1e-5
  // CHECK-LABEL: func.func @main
  // CHECK-NOT: f64
  // CHECK: stablehlo.reduce(%arg0 init: {{.*}}) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
  // CHECK: stablehlo.divide {{.*}} : tensor<3xf32>
  // CHECK: stablehlo.subtract %arg0, {{.*}} : tensor<3x8xf32>
  // CHECK-NOT: f64
  // CHECK: [[VARIANCE:%.*]] = stablehlo.divide {{.*}} : tensor<3xf32>
  // CHECK-NEXT: return [[VARIANCE]]
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = stablehlo.convert %x : (tensor<3x8xf32>) -> tensor<3x8xf64> loc("norm/var")
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf64>, tensor<f64>) -> tensor<3xf64> loc("norm/var")
  %count = stablehlo.constant dense<8> : tensor<3xi64> loc("norm/var")
  %2 = stablehlo.convert %count : (tensor<3xi64>) -> tensor<3xf64> loc("norm/var")
  %3 = stablehlo.divide %1, %2 : tensor<3xf64> loc("norm/var")
  %4 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<3xf64>) -> tensor<3x8xf64> loc("norm/var")
  %5 = stablehlo.subtract %0, %4 : tensor<3x8xf64> loc("norm/var")
  %6 = stablehlo.multiply %5, %5 : tensor<3x8xf64> loc("norm/var")
  %7 = stablehlo.reduce(%6 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x8xf64>, tensor<f64>) -> tensor<3xf64> loc("norm/var")
  %rest = stablehlo.constant dense<[7.0, 7.0, 7.0]> : tensor<3xf64>
  %8 = stablehlo.divide %7, %rest : tensor<3xf64> loc("norm/var")
  %9 = stablehlo.convert %8 : (tensor<3xf64>) -> tensor<3xf32> loc("norm/var")
  return %9 : tensor<3xf32>
}

// -----

// From bf16 it becomes f32, and only the ends are cast.
func.func @main(%x: tensor<8xbf16>) -> tensor<8xbf16> {
  // TOLERANCE: 1e-2
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[X:%.*]] = stablehlo.convert %arg0 : (tensor<8xbf16>) -> tensor<8xf32>
  // CHECK-NEXT: [[E:%.*]] = stablehlo.exponential [[X]] : tensor<8xf32>
  // CHECK-NEXT: [[R:%.*]] = stablehlo.convert [[E]] : (tensor<8xf32>) -> tensor<8xbf16>
  // CHECK-NEXT: return [[R]]
  %0 = stablehlo.convert %x : (tensor<8xbf16>) -> tensor<8xf64> loc("exp")
  %1 = stablehlo.exponential %0 : tensor<8xf64> loc("exp")
  %2 = stablehlo.convert %1 : (tensor<8xf64>) -> tensor<8xbf16> loc("exp")
  return %2 : tensor<8xbf16>
}

// -----

// The user's own cast has a location to itself; on the way in, and on the way out.
func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  // CHECK: stablehlo.exponential {{.*}} : tensor<8xf64>
  // CHECK: stablehlo.exponential {{.*}} : tensor<8xf64>
  %0 = stablehlo.convert %x : (tensor<8xf32>) -> tensor<8xf64> loc("to")
  %1 = stablehlo.exponential %0 : tensor<8xf64> loc("exp")
  %2 = stablehlo.convert %1 : (tensor<8xf64>) -> tensor<8xf32> loc("exp")
  %3 = stablehlo.convert %y : (tensor<8xf32>) -> tensor<8xf64> loc("exp_1")
  %4 = stablehlo.exponential %3 : tensor<8xf64> loc("exp_1")
  %5 = stablehlo.convert %4 : (tensor<8xf64>) -> tensor<8xf32> loc("to_1")
  return %2, %5 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Arguments and results in f64 are the user's.
func.func @main(%x: tensor<8xf64>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf64>) {
  // CHECK: stablehlo.exponential %arg0 : tensor<8xf64>
  // CHECK: stablehlo.exponential {{.*}} : tensor<8xf64>
  %0 = stablehlo.exponential %x : tensor<8xf64> loc("exp")
  %1 = stablehlo.convert %0 : (tensor<8xf64>) -> tensor<8xf32> loc("exp")
  %2 = stablehlo.convert %y : (tensor<8xf32>) -> tensor<8xf64> loc("exp_1")
  %3 = stablehlo.exponential %2 : tensor<8xf64> loc("exp_1")
  return %1, %3 : tensor<8xf32>, tensor<8xf64>
}

// -----

// Integers divided by way of f64, and a comparison: the answer hangs on every bit.
func.func @main(%n: tensor<8xi64>, %x: tensor<8xf32>) -> (tensor<8xi64>, tensor<8xi1>) {
  // CHECK: stablehlo.floor {{.*}} : tensor<8xf64>
  // CHECK: stablehlo.multiply {{.*}} : tensor<8xf64>
  %three = stablehlo.constant dense<3.0> : tensor<8xf64>
  %0 = stablehlo.convert %n : (tensor<8xi64>) -> tensor<8xf64> loc("floor_divide")
  %1 = stablehlo.divide %0, %three : tensor<8xf64> loc("floor_divide")
  %2 = stablehlo.floor %1 : tensor<8xf64> loc("floor_divide")
  %3 = stablehlo.convert %2 : (tensor<8xf64>) -> tensor<8xi64> loc("floor_divide")
  %4 = stablehlo.convert %x : (tensor<8xf32>) -> tensor<8xf64> loc("lt")
  %5 = stablehlo.multiply %4, %4 : tensor<8xf64> loc("lt")
  %6 = stablehlo.compare LT, %5, %three, FLOAT : (tensor<8xf64>, tensor<8xf64>) -> tensor<8xi1> loc("lt")
  return %3, %6 : tensor<8xi64>, tensor<8xi1>
}

// -----

// An integer that only ends in a float: a true division.
func.func @main(%n: tensor<8xi64>) -> tensor<8xf32> {
  // CHECK-NOT: f64
  // CHECK: stablehlo.convert %arg0 : (tensor<8xi64>) -> tensor<8xf32>
  // CHECK: stablehlo.divide {{.*}} : tensor<8xf32>
  // CHECK-NOT: f64
  %three = stablehlo.constant dense<3.0> : tensor<8xf64>
  %0 = stablehlo.convert %n : (tensor<8xi64>) -> tensor<8xf64> loc("div")
  %1 = stablehlo.divide %0, %three : tensor<8xf64> loc("div")
  %2 = stablehlo.convert %1 : (tensor<8xf64>) -> tensor<8xf32> loc("div")
  return %2 : tensor<8xf32>
}

// -----

// A constant that f32 does not have, too large or too small.
func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  // CHECK: stablehlo.minimum {{.*}} : tensor<8xf64>
  // CHECK: stablehlo.maximum {{.*}} : tensor<8xf64>
  %huge = stablehlo.constant dense<1.0e300> : tensor<8xf64>
  %0 = stablehlo.convert %x : (tensor<8xf32>) -> tensor<8xf64> loc("min")
  %1 = stablehlo.minimum %0, %huge : tensor<8xf64> loc("min")
  %2 = stablehlo.convert %1 : (tensor<8xf64>) -> tensor<8xf32> loc("min")
  %tiny = stablehlo.constant dense<[1.0e-300, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]> : tensor<8xf64>
  %3 = stablehlo.convert %y : (tensor<8xf32>) -> tensor<8xf64> loc("max")
  %4 = stablehlo.maximum %3, %tiny : tensor<8xf64> loc("max")
  %5 = stablehlo.convert %4 : (tensor<8xf64>) -> tensor<8xf32> loc("max")
  return %2, %5 : tensor<8xf32>, tensor<8xf32>
}

// -----

// A constant that an introduced island shares with the user's f64 does not tie the two together; infinity fits.
func.func @main(%x: tensor<8xf32>, %y: tensor<8xf64>) -> (tensor<8xf32>, tensor<8xf64>) {
  // EXACT
  // CHECK: stablehlo.maximum %arg0, {{.*}} : tensor<8xf32>
  // CHECK: stablehlo.maximum %arg1, {{.*}} : tensor<8xf64>
  %infinity = stablehlo.constant dense<0xFFF0000000000000> : tensor<8xf64>
  %0 = stablehlo.convert %x : (tensor<8xf32>) -> tensor<8xf64> loc("max")
  %1 = stablehlo.maximum %0, %infinity : tensor<8xf64> loc("max")
  %2 = stablehlo.convert %1 : (tensor<8xf64>) -> tensor<8xf32> loc("max")
  %3 = stablehlo.maximum %y, %infinity : tensor<8xf64>
  return %2, %3 : tensor<8xf32>, tensor<8xf64>
}

// -----

// An operation that does not work in any float type, and a loop.
func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  // CHECK: stablehlo.reduce_precision {{.*}} : tensor<8xf64>
  // CHECK: stablehlo.while
  // CHECK: stablehlo.add {{.*}} : tensor<8xf64>
  %0 = stablehlo.convert %x : (tensor<8xf32>) -> tensor<8xf64> loc("round")
  %1 = stablehlo.reduce_precision %0, format = e11m30 : tensor<8xf64> loc("round")
  %2 = stablehlo.convert %1 : (tensor<8xf64>) -> tensor<8xf32> loc("round")
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %3 = stablehlo.convert %y : (tensor<8xf32>) -> tensor<8xf64> loc("loop")
  %4:2 = stablehlo.while(%i = %zero, %sum = %3) : tensor<i32>, tensor<8xf64>
   cond {
    %6 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %6 : tensor<i1>
  } do {
    %6 = stablehlo.add %i, %one : tensor<i32>
    %7 = stablehlo.add %sum, %sum : tensor<8xf64>
    stablehlo.return %6, %7 : tensor<i32>, tensor<8xf64>
  } loc("loop")
  %5 = stablehlo.convert %4#1 : (tensor<8xf64>) -> tensor<8xf32> loc("loop")
  return %2, %5 : tensor<8xf32>, tensor<8xf32>
}

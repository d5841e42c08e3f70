// RUN: tpuc opt --passes 'expand-c128' --target v5e %s | filecheck %s

// Conversions to and from c128, and those that are not of c128.
func.func @main(%x: tensor<6xf64>, %n: tensor<6xi32>, %z: tensor<6xcomplex<f32>>, %w: tensor<6xcomplex<f64>>)
    -> (tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f32>>, tensor<6xcomplex<f32>>) {
  // CHECK-NOT: stablehlo.convert{{.*}}complex<f64>
  // CHECK: stablehlo.convert %arg0 : (tensor<6xf64>) -> tensor<6xcomplex<f32>>
  // CHECK-NOT: stablehlo.convert{{.*}}complex<f64>
  %0 = stablehlo.convert %x : (tensor<6xf64>) -> tensor<6xcomplex<f64>>
  %1 = stablehlo.convert %n : (tensor<6xi32>) -> tensor<6xcomplex<f64>>
  %2 = stablehlo.convert %z : (tensor<6xcomplex<f32>>) -> tensor<6xcomplex<f64>>
  %3 = stablehlo.convert %w : (tensor<6xcomplex<f64>>) -> tensor<6xcomplex<f32>>
  %4 = stablehlo.convert %x : (tensor<6xf64>) -> tensor<6xcomplex<f32>>
  return %0, %1, %2, %3, %4 : tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f32>>, tensor<6xcomplex<f32>>
}

// -----

// Quotients and absolute values, of numbers whose squares overflow too.
func.func @main(%x: tensor<6xf64>, %y: tensor<6xf64>) -> (tensor<6xcomplex<f64>>, tensor<6xf64>, tensor<6xf64>) {
  // CHECK-NOT: stablehlo.divide {{.*}}complex
  // CHECK-NOT: stablehlo.abs {{.*}}complex
  // CHECK: return
  %large = stablehlo.constant dense<1.0e200> : tensor<6xf64>
  %zero = stablehlo.constant dense<0.0> : tensor<6xf64>
  %0 = stablehlo.multiply %y, %large : tensor<6xf64>
  %1 = stablehlo.complex %x, %0 : tensor<6xcomplex<f64>>
  %2 = stablehlo.complex %0, %y : tensor<6xcomplex<f64>>
  %3 = stablehlo.divide %1, %2 : tensor<6xcomplex<f64>>
  %4 = stablehlo.abs %1 : (tensor<6xcomplex<f64>>) -> tensor<6xf64>
  %5 = stablehlo.complex %zero, %zero : tensor<6xcomplex<f64>>
  %6 = stablehlo.abs %5 : (tensor<6xcomplex<f64>>) -> tensor<6xf64>
  return %3, %4, %6 : tensor<6xcomplex<f64>>, tensor<6xf64>, tensor<6xf64>
}

// -----

// c64 stays: every compiler has it.
func.func @main(%x: tensor<6xcomplex<f32>>) -> (tensor<6xcomplex<f32>>, tensor<6xf32>) {
  // CHECK: stablehlo.divide
  // CHECK: stablehlo.abs
  %0 = stablehlo.divide %x, %x : tensor<6xcomplex<f32>>
  %1 = stablehlo.abs %x : (tensor<6xcomplex<f32>>) -> tensor<6xf32>
  return %0, %1 : tensor<6xcomplex<f32>>, tensor<6xf32>
}

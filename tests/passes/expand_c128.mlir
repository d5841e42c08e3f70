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

// Functions of small, common and large numbers.
func.func @main(%x: tensor<6xf64>, %y: tensor<6xf64>) -> (tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>) {
  // CHECK-NOT: stablehlo.exponential_minus_one {{.*}}complex
  // CHECK-NOT: stablehlo.sine {{.*}}complex
  // CHECK-NOT: stablehlo.cosine {{.*}}complex
  // CHECK-NOT: stablehlo.tan {{.*}}complex
  // CHECK-NOT: stablehlo.tanh {{.*}}complex
  // CHECK-NOT: stablehlo.rsqrt {{.*}}complex
  // CHECK-NOT: stablehlo.power {{.*}}complex
  // CHECK-NOT: stablehlo.iota {{.*}}complex
  // CHECK: return
  %tiny = stablehlo.constant dense<1.0e-9> : tensor<6xf64>
  %large = stablehlo.constant dense<3.0e2> : tensor<6xf64>
  %z = stablehlo.complex %x, %y : tensor<6xcomplex<f64>>
  %w = stablehlo.complex %y, %x : tensor<6xcomplex<f64>>
  %0 = stablehlo.multiply %x, %tiny : tensor<6xf64>
  %1 = stablehlo.multiply %y, %tiny : tensor<6xf64>
  %small = stablehlo.complex %0, %1 : tensor<6xcomplex<f64>>
  %2 = stablehlo.multiply %x, %large : tensor<6xf64>
  %far = stablehlo.complex %2, %y : tensor<6xcomplex<f64>>
  %3 = stablehlo.power %z, %w : tensor<6xcomplex<f64>>
  %4 = stablehlo.rsqrt %z : tensor<6xcomplex<f64>>
  %5 = stablehlo.exponential_minus_one %small : tensor<6xcomplex<f64>>
  %6 = stablehlo.sine %small : tensor<6xcomplex<f64>>
  %7 = stablehlo.cosine %z : tensor<6xcomplex<f64>>
  %8 = stablehlo.tan %z : tensor<6xcomplex<f64>>
  %9 = stablehlo.tanh %far : tensor<6xcomplex<f64>>
  %10 = stablehlo.tanh %small : tensor<6xcomplex<f64>>
  %11 = stablehlo.iota dim = 0 : tensor<6xcomplex<f64>>
  return %3, %4, %5, %6, %7, %8, %9, %10, %11 : tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>
}

// -----

// Powers of zero, and to the power of zero.
func.func @main(%x: tensor<6xf64>) -> (tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>) {
  // CHECK-NOT: stablehlo.power
  // CHECK: return
  %n = stablehlo.constant dense<0.0> : tensor<6xf64>
  %zero = stablehlo.complex %n, %n : tensor<6xcomplex<f64>>
  %size = stablehlo.abs %x : tensor<6xf64>
  %some = stablehlo.complex %size, %n : tensor<6xcomplex<f64>>
  %0 = stablehlo.power %zero, %some : tensor<6xcomplex<f64>>
  %1 = stablehlo.power %some, %zero : tensor<6xcomplex<f64>>
  %2 = stablehlo.power %zero, %zero : tensor<6xcomplex<f64>>
  return %0, %1, %2 : tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>
}

// -----

// Scatters that add, and that set; not one that multiplies.
func.func @main(%x: tensor<6xf64>, %y: tensor<6xf64>) -> (tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>) {
  // CHECK-COUNT-4: }) : (tensor<6xf64>, tensor<3x1xi32>, tensor<3xf64>)
  // CHECK: }) : (tensor<6xcomplex<f64>>,
  %i = stablehlo.constant dense<[[1], [3], [1]]> : tensor<3x1xi32>
  %d = stablehlo.constant dense<[[1], [3], [0]]> : tensor<3x1xi32>
  %z = stablehlo.complex %x, %y : tensor<6xcomplex<f64>>
  %u = stablehlo.slice %z [3:6] : (tensor<6xcomplex<f64>>) -> tensor<3xcomplex<f64>>
  %0 = "stablehlo.scatter"(%z, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<complex<f64>>, %b: tensor<complex<f64>>):
      %c = stablehlo.add %a, %b : tensor<complex<f64>>
      stablehlo.return %c : tensor<complex<f64>>
  }) : (tensor<6xcomplex<f64>>, tensor<3x1xi32>, tensor<3xcomplex<f64>>) -> tensor<6xcomplex<f64>>
  %1 = "stablehlo.scatter"(%z, %d, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<complex<f64>>, %b: tensor<complex<f64>>):
      stablehlo.return %b : tensor<complex<f64>>
  }) : (tensor<6xcomplex<f64>>, tensor<3x1xi32>, tensor<3xcomplex<f64>>) -> tensor<6xcomplex<f64>>
  %2 = "stablehlo.scatter"(%z, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<complex<f64>>, %b: tensor<complex<f64>>):
      %c = stablehlo.multiply %a, %b : tensor<complex<f64>>
      stablehlo.return %c : tensor<complex<f64>>
  }) : (tensor<6xcomplex<f64>>, tensor<3x1xi32>, tensor<3xcomplex<f64>>) -> tensor<6xcomplex<f64>>
  return %0, %1, %2 : tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>, tensor<6xcomplex<f64>>
}

// -----

// The layout of results is left to the compiler.
func.func @main(%x: tensor<4x3x2xf64>, %y: tensor<4x3x2xcomplex<f32>>)
    -> (tensor<4x3x2xcomplex<f64>>, tensor<4x3x2xcomplex<f32>>, tensor<4x3x2xf64>) {
  // CHECK: -> (tensor<4x3x2xcomplex<f64>> {mhlo.layout_mode = "auto"}, tensor<4x3x2xcomplex<f32>>, tensor<4x3x2xf64>)
  %0 = stablehlo.complex %x, %x : tensor<4x3x2xcomplex<f64>>
  return %0, %y, %x : tensor<4x3x2xcomplex<f64>>, tensor<4x3x2xcomplex<f32>>, tensor<4x3x2xf64>
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

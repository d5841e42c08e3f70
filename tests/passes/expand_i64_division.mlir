// RUN: tpuc opt --passes 'expand-i64-division' --target v5e %s | filecheck %s

// Quotients and remainders of both signs.
func.func @main(%x: tensor<6xi64>, %y: tensor<6xi64>) -> (tensor<6xi64>, tensor<6xi64>) {
  // CHECK-NOT: stablehlo.divide {{.*}}i64
  // CHECK-NOT: stablehlo.remainder
  // CHECK: return
  %0 = stablehlo.divide %x, %y : tensor<6xi64>
  %1 = stablehlo.remainder %x, %y : tensor<6xi64>
  return %0, %1 : tensor<6xi64>, tensor<6xi64>
}

// -----

// Numbers without a sign.
func.func @main(%x: tensor<6xui64>, %y: tensor<6xui64>) -> (tensor<6xui64>, tensor<6xui64>) {
  // CHECK-NOT: stablehlo.divide {{.*}}i64
  // CHECK-NOT: stablehlo.remainder
  // CHECK: return
  %0 = stablehlo.divide %x, %y : tensor<6xui64>
  %1 = stablehlo.remainder %x, %y : tensor<6xui64>
  return %0, %1 : tensor<6xui64>, tensor<6xui64>
}

// -----

// Other numbers stay as they are.
func.func @main(%x: tensor<6xi32>, %y: tensor<6xf32>, %z: tensor<6xf64>) -> (tensor<6xi32>, tensor<6xf32>, tensor<6xf64>) {
  // CHECK: stablehlo.divide %arg0, %arg0 : tensor<6xi32>
  // CHECK: stablehlo.divide %arg1, %arg1 : tensor<6xf32>
  // CHECK: stablehlo.remainder %arg2, %arg2 : tensor<6xf64>
  %0 = stablehlo.divide %x, %x : tensor<6xi32>
  %1 = stablehlo.divide %y, %y : tensor<6xf32>
  %2 = stablehlo.remainder %z, %z : tensor<6xf64>
  return %0, %1, %2 : tensor<6xi32>, tensor<6xf32>, tensor<6xf64>
}

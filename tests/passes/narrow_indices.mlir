// RUN: tpuc opt --passes 'narrow-indices' %s | filecheck %s

// Positions, and what is computed from them, fit; the output keeps its dtype.
func.func @main(%x: tensor<2x8xf32>) -> (tensor<8xi1>, tensor<8xi64>, tensor<8xf32>) {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK: [[I:%.*]] = stablehlo.iota dim = 0 : tensor<8xi32>
  // CHECK: stablehlo.multiply [[I]], {{.*}} : tensor<8xi32>
  // CHECK: stablehlo.convert {{.*}} : (tensor<8xi32>) -> tensor<8xi64>
  // CHECK: stablehlo.compare LT, {{.*}} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
  // CHECK: stablehlo.convert [[I]] : (tensor<8xi32>) -> tensor<8xf32>
  %0 = stablehlo.iota dim = 0 : tensor<8xi64>
  %1 = stablehlo.constant dense<[3, 1, -4, 1, 5, 9, 2, 6]> : tensor<8xi64>
  %2 = stablehlo.multiply %0, %1 : tensor<8xi64>
  %3 = stablehlo.constant dense<7> : tensor<8xi64>
  %4 = stablehlo.compare LT, %2, %3 : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %5 = stablehlo.convert %0 : (tensor<8xi64>) -> tensor<8xf32>
  return %4, %2, %5 : tensor<8xi1>, tensor<8xi64>, tensor<8xf32>
}

// -----

// What comes from i32, and the remainder of it, fits; back in i32 nothing is left of the way.
func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK-NOT: i64
  // CHECK: [[R:%.*]] = stablehlo.remainder %arg0, {{.*}} : tensor<4xi32>
  // CHECK-NEXT: return [[R]]
  %0 = stablehlo.convert %x : (tensor<4xi32>) -> tensor<4xi64>
  %c = stablehlo.constant dense<3> : tensor<4xi64>
  %1 = stablehlo.remainder %0, %c : tensor<4xi64>
  %2 = stablehlo.convert %1 : (tensor<4xi64>) -> tensor<4xi32>
  return %2 : tensor<4xi32>
}

// -----

// A sum of two i32 does not fit, and neither does a large constant.
func.func @main(%x: tensor<4xi32>) -> (tensor<4xi64>, tensor<4xi64>) {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK: stablehlo.add {{.*}} : tensor<4xi64>
  // CHECK: stablehlo.multiply {{.*}} : tensor<4xi64>
  %0 = stablehlo.convert %x : (tensor<4xi32>) -> tensor<4xi64>
  %1 = stablehlo.add %0, %0 : tensor<4xi64>
  %2 = stablehlo.iota dim = 0 : tensor<4xi64>
  %c = stablehlo.constant dense<3000000000> : tensor<4xi64>
  %3 = stablehlo.multiply %2, %c : tensor<4xi64>
  return %1, %3 : tensor<4xi64>, tensor<4xi64>
}

// -----

// Of an input nothing is known: it is compared in i64, and limited where it indexes.
func.func @main(%t: tensor<9x2xf32>, %ids: tensor<4xi64>) -> (tensor<4x2xf32>, tensor<4xi1>) {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK-DAG: [[L:%.*]] = stablehlo.constant dense<-2147483648> : tensor<i64>
  // CHECK-DAG: [[M:%.*]] = stablehlo.constant dense<2147483647> : tensor<i64>
  // CHECK: [[C:%.*]] = stablehlo.clamp [[L]], {{.*}}, [[M]]
  // CHECK: [[N:%.*]] = stablehlo.convert [[C]] : (tensor<4x1xi64>) -> tensor<4x1xi32>
  // CHECK: "stablehlo.gather"({{.*}}, [[N]])
  // CHECK: stablehlo.compare NE, {{.*}} : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  %0 = stablehlo.reshape %ids : (tensor<4xi64>) -> tensor<4x1xi64>
  %1 = "stablehlo.gather"(%t, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2>}> : (tensor<9x2xf32>, tensor<4x1xi64>) -> tensor<4x2xf32>
  %c = stablehlo.constant dense<0> : tensor<4xi64>
  %2 = stablehlo.compare NE, %ids, %c : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  return %1, %2 : tensor<4x2xf32>, tensor<4xi1>
}

// -----

// A slice at a place that is computed.
func.func @main(%t: tensor<9xf32>, %p: tensor<i64>) -> tensor<3xf32> {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK: stablehlo.dynamic_slice %arg0, {{.*}}, sizes = [3] : (tensor<9xf32>, tensor<i32>) -> tensor<3xf32>
  %two = stablehlo.constant dense<2> : tensor<i64>
  %0 = stablehlo.add %p, %two : tensor<i64>
  %1 = stablehlo.dynamic_slice %t, %0, sizes = [3] : (tensor<9xf32>, tensor<i64>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}

// -----

// In a loop, what goes around keeps its dtype.
func.func @main(%t: tensor<9xf32>) -> (tensor<i64>, tensor<1xf32>) {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK: stablehlo.while
  // CHECK-SAME: tensor<i64>, tensor<1xf32>
  // CHECK: stablehlo.compare LT, {{.*}} : (tensor<i64>, tensor<i64>) -> tensor<i1>
  // CHECK: stablehlo.add {{.*}} : tensor<i64>
  // CHECK: stablehlo.dynamic_slice {{.*}} : (tensor<9xf32>, tensor<i32>) -> tensor<1xf32>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %x = stablehlo.slice %t [0:1] : (tensor<9xf32>) -> tensor<1xf32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i64>, tensor<1xf32>
    cond {
      %two = stablehlo.constant dense<2> : tensor<i64>
      %less = stablehlo.compare LT, %i, %two : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i64>
      %next = stablehlo.add %i, %one : tensor<i64>
      %s = stablehlo.dynamic_slice %t, %next, sizes = [1] : (tensor<9xf32>, tensor<i64>) -> tensor<1xf32>
      stablehlo.return %next, %s : tensor<i64>, tensor<1xf32>
    }
  return %r#0, %r#1 : tensor<i64>, tensor<1xf32>
}

// RUN: tpuc opt --passes 'simplify-arithmetic' %s | filecheck %s

// Neutral elements of floats, from either side where that is the same.
func.func @main(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: return %arg0, %arg0, %arg0, %arg0
  %one = stablehlo.constant dense<1.0> : tensor<16xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<16xf32>
  %minus_zero = stablehlo.constant dense<-0.0> : tensor<16xf32>
  %infinity = stablehlo.constant dense<0x7F800000> : tensor<16xf32>
  %minus_infinity = stablehlo.constant dense<0xFF800000> : tensor<16xf32>
  %0 = stablehlo.multiply %x, %one : tensor<16xf32>
  %1 = stablehlo.multiply %one, %0 : tensor<16xf32>
  %2 = stablehlo.divide %x, %one : tensor<16xf32>
  %3 = stablehlo.power %2, %one : tensor<16xf32>
  %4 = stablehlo.add %minus_zero, %x : tensor<16xf32>
  %5 = stablehlo.subtract %4, %zero : tensor<16xf32>
  %6 = stablehlo.maximum %minus_infinity, %x : tensor<16xf32>
  %7 = stablehlo.minimum %6, %infinity : tensor<16xf32>
  return %1, %3, %5, %7 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}

// -----

// What changes the sign of a zero, or makes NaN of infinity, and what is neutral only on the other side.
func.func @main(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  // EXACT
  // CHECK: stablehlo.add
  // CHECK: stablehlo.subtract
  // CHECK: stablehlo.multiply
  // CHECK: stablehlo.divide
  // CHECK: stablehlo.subtract
  %one = stablehlo.constant dense<1.0> : tensor<16xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<16xf32>
  %minus_zero = stablehlo.constant dense<-0.0> : tensor<16xf32>
  %0 = stablehlo.add %x, %zero : tensor<16xf32>
  %1 = stablehlo.subtract %x, %minus_zero : tensor<16xf32>
  %2 = stablehlo.multiply %x, %zero : tensor<16xf32>
  %3 = stablehlo.divide %one, %x : tensor<16xf32>
  %4 = stablehlo.subtract %zero, %x : tensor<16xf32>
  return %0, %1, %2, %3, %4 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}

// -----

// Neutral elements of integers and bools.
func.func @main(%n: tensor<8xi32>, %u: tensor<8xui8>, %p: tensor<8xi1>) -> (tensor<8xi32>, tensor<8xi32>, tensor<8xui8>, tensor<8xi1>) {
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: return %arg0, %arg0, %arg1, %arg2
  %zero = stablehlo.constant dense<0> : tensor<8xi32>
  %one = stablehlo.constant dense<1> : tensor<8xi32>
  %ones = stablehlo.constant dense<-1> : tensor<8xi32>
  %bits = stablehlo.constant dense<255> : tensor<8xui8>
  %true = stablehlo.constant dense<true> : tensor<8xi1>
  %false = stablehlo.constant dense<false> : tensor<8xi1>
  %0 = stablehlo.add %n, %zero : tensor<8xi32>
  %1 = stablehlo.subtract %0, %zero : tensor<8xi32>
  %2 = stablehlo.multiply %1, %one : tensor<8xi32>
  %3 = stablehlo.divide %2, %one : tensor<8xi32>
  %4 = stablehlo.and %ones, %n : tensor<8xi32>
  %5 = stablehlo.or %4, %zero : tensor<8xi32>
  %6 = stablehlo.xor %zero, %5 : tensor<8xi32>
  %7 = stablehlo.and %u, %bits : tensor<8xui8>
  %8 = stablehlo.and %true, %p : tensor<8xi1>
  %9 = stablehlo.or %8, %false : tensor<8xi1>
  return %3, %6, %7, %9 : tensor<8xi32>, tensor<8xi32>, tensor<8xui8>, tensor<8xi1>
}

// -----

// One is not all ones.
func.func @main(%n: tensor<8xi32>, %u: tensor<8xui8>) -> (tensor<8xi32>, tensor<8xui8>) {
  // CHECK: stablehlo.and
  // CHECK: stablehlo.or
  %one = stablehlo.constant dense<1> : tensor<8xi32>
  %bit = stablehlo.constant dense<1> : tensor<8xui8>
  %0 = stablehlo.and %n, %one : tensor<8xi32>
  %1 = stablehlo.or %u, %bit : tensor<8xui8>
  return %0, %1 : tensor<8xi32>, tensor<8xui8>
}

// -----

// A select that has no choice.
func.func @main(%p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[CHOICE:%.*]] = stablehlo.select %arg0, %arg1, %arg2
  // CHECK-NEXT: return %arg1, %arg2, %arg1, [[CHOICE]]
  %true = stablehlo.constant dense<true> : tensor<4xi1>
  %false = stablehlo.constant dense<false> : tensor<i1>
  %0 = stablehlo.select %true, %x, %y : tensor<4xi1>, tensor<4xf32>
  %1 = stablehlo.select %false, %x, %y : tensor<i1>, tensor<4xf32>
  %2 = stablehlo.select %p, %x, %x : tensor<4xi1>, tensor<4xf32>
  %3 = stablehlo.select %p, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Casts to a type that holds every value, and back or on.
func.func @main(%x: tensor<8xf32>, %n: tensor<8xi32>, %p: tensor<8xi1>) -> (tensor<8xf32>, tensor<8xi32>, tensor<8xf32>, tensor<8xi1>) {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[N:%.*]] = stablehlo.convert %arg1 : (tensor<8xi32>) -> tensor<8xf32>
  // CHECK-NEXT: return %arg0, %arg1, [[N]], %arg2
  %0 = stablehlo.convert %x : tensor<8xf32>
  %1 = stablehlo.convert %0 : (tensor<8xf32>) -> tensor<8xf64>
  %2 = stablehlo.convert %1 : (tensor<8xf64>) -> tensor<8xf32>
  %3 = stablehlo.convert %n : (tensor<8xi32>) -> tensor<8xf64>
  %4 = stablehlo.convert %3 : (tensor<8xf64>) -> tensor<8xi32>
  %5 = stablehlo.convert %3 : (tensor<8xf64>) -> tensor<8xf32>
  %6 = stablehlo.convert %p : (tensor<8xi1>) -> tensor<8xui8>
  %7 = stablehlo.convert %6 : (tensor<8xui8>) -> tensor<8xi1>
  return %2, %4, %5, %7 : tensor<8xf32>, tensor<8xi32>, tensor<8xf32>, tensor<8xi1>
}

// -----

// Casts that lose something in between.
func.func @main(%x: tensor<8xf32>, %n: tensor<8xi32>) -> (tensor<8xf32>, tensor<8xi32>, tensor<8xi32>) {
  // EXACT
  // CHECK: stablehlo.convert %arg0 : (tensor<8xf32>) -> tensor<8xf16>
  // CHECK: stablehlo.convert {{.*}} : (tensor<8xf16>) -> tensor<8xf32>
  // CHECK: stablehlo.convert %arg1 : (tensor<8xi32>) -> tensor<8xf32>
  // CHECK: stablehlo.convert {{.*}} : (tensor<8xf32>) -> tensor<8xi32>
  // CHECK: stablehlo.convert %arg1 : (tensor<8xi32>) -> tensor<8xui32>
  // CHECK: stablehlo.convert {{.*}} : (tensor<8xui32>) -> tensor<8xi32>
  %0 = stablehlo.convert %x : (tensor<8xf32>) -> tensor<8xf16>
  %1 = stablehlo.convert %0 : (tensor<8xf16>) -> tensor<8xf32>
  %2 = stablehlo.convert %n : (tensor<8xi32>) -> tensor<8xf32>
  %3 = stablehlo.convert %2 : (tensor<8xf32>) -> tensor<8xi32>
  %4 = stablehlo.convert %n : (tensor<8xi32>) -> tensor<8xui32>
  %5 = stablehlo.convert %4 : (tensor<8xui32>) -> tensor<8xi32>
  return %1, %3, %5 : tensor<8xf32>, tensor<8xi32>, tensor<8xi32>
}

// -----

// Negations; of an order they stay, because neither a < NaN nor a >= NaN holds.
func.func @main(%p: tensor<8xi1>, %x: tensor<16xf32>, %y: tensor<16xf32>) -> (tensor<8xi1>, tensor<16xi1>, tensor<16xi1>, tensor<16xi1>) {
  // EXACT
  // CHECK-LABEL: func.func @main
  // CHECK-NEXT: [[UNEQUAL:%.*]] = stablehlo.compare NE, %arg1, %arg2, FLOAT
  // CHECK-NEXT: [[EQUAL:%.*]] = stablehlo.compare EQ, %arg1, %arg2, FLOAT
  // CHECK-NEXT: [[LESS:%.*]] = stablehlo.compare LT, %arg1, %arg2, FLOAT
  // CHECK-NEXT: [[NOT:%.*]] = stablehlo.not [[LESS]]
  // CHECK-NEXT: return %arg0, [[UNEQUAL]], [[EQUAL]], [[NOT]]
  %0 = stablehlo.not %p : tensor<8xi1>
  %1 = stablehlo.not %0 : tensor<8xi1>
  %2 = stablehlo.compare EQ, %x, %y, FLOAT : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xi1>
  %3 = stablehlo.not %2 : tensor<16xi1>
  %4 = stablehlo.compare NE, %x, %y, FLOAT : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xi1>
  %5 = stablehlo.not %4 : tensor<16xi1>
  %6 = stablehlo.compare LT, %x, %y, FLOAT : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xi1>
  %7 = stablehlo.not %6 : tensor<16xi1>
  return %1, %3, %5, %7 : tensor<8xi1>, tensor<16xi1>, tensor<16xi1>, tensor<16xi1>
}

// RUN: tpuc opt --passes 'recompose-activations' --target v5p %s | filecheck %s

// Gelu by erf, of a quotient.
// TOLERANCE: 2e-6
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.composite "tpuc.gelu" %arg0
// CHECK-SAME: approximate = "none"
// CHECK-NEXT: return
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<4x8xf32>
  %root = stablehlo.constant dense<1.41421354> : tensor<4x8xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4x8xf32>
  %h = stablehlo.multiply %x, %half : tensor<4x8xf32>
  %z = stablehlo.divide %x, %root : tensor<4x8xf32>
  %e = chlo.erf %z : tensor<4x8xf32> -> tensor<4x8xf32>
  %s = stablehlo.add %one, %e : tensor<4x8xf32>
  %y = stablehlo.multiply %h, %s : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Gelu by erfc.
// TOLERANCE: 2e-6
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.composite "tpuc.gelu" %arg0
// CHECK-SAME: approximate = "none"
// CHECK-NEXT: return
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<4x8xf32>
  %root = stablehlo.constant dense<0.707106769> : tensor<4x8xf32>
  %n = stablehlo.negate %x : tensor<4x8xf32>
  %z = stablehlo.multiply %n, %root : tensor<4x8xf32>
  %e = chlo.erfc %z : tensor<4x8xf32> -> tensor<4x8xf32>
  %h = stablehlo.multiply %half, %e : tensor<4x8xf32>
  %y = stablehlo.multiply %x, %h : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Gelu by tanh, with a power.
// TOLERANCE: 2e-6
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.composite "tpuc.gelu" %arg0
// CHECK-SAME: approximate = "tanh"
// CHECK-NEXT: return
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<4x8xf32>
  %three = stablehlo.constant dense<3.0> : tensor<4x8xf32>
  %c = stablehlo.constant dense<4.471500e-02> : tensor<4x8xf32>
  %root = stablehlo.constant dense<0.797884583> : tensor<4x8xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4x8xf32>
  %p = stablehlo.power %x, %three : tensor<4x8xf32>
  %q = stablehlo.multiply %p, %c : tensor<4x8xf32>
  %s = stablehlo.add %x, %q : tensor<4x8xf32>
  %z = stablehlo.multiply %root, %s : tensor<4x8xf32>
  %t = stablehlo.tanh %z : tensor<4x8xf32>
  %u = stablehlo.add %t, %one : tensor<4x8xf32>
  %h = stablehlo.multiply %half, %x : tensor<4x8xf32>
  %y = stablehlo.multiply %h, %u : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Gelu by tanh, with the terms in another order.
// TOLERANCE: 2e-6
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.composite "tpuc.gelu" %arg0
// CHECK-SAME: approximate = "tanh"
// CHECK-NEXT: return
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<4x8xf32>
  %c = stablehlo.constant dense<4.471500e-02> : tensor<4x8xf32>
  %root = stablehlo.constant dense<0.797884583> : tensor<4x8xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4x8xf32>
  %p = stablehlo.multiply %x, %x : tensor<4x8xf32>
  %q = stablehlo.multiply %p, %c : tensor<4x8xf32>
  %s = stablehlo.add %q, %one : tensor<4x8xf32>
  %w = stablehlo.multiply %x, %s : tensor<4x8xf32>
  %z = stablehlo.multiply %root, %w : tensor<4x8xf32>
  %t = stablehlo.tanh %z : tensor<4x8xf32>
  %u = stablehlo.add %one, %t : tensor<4x8xf32>
  %v = stablehlo.multiply %u, %half : tensor<4x8xf32>
  %y = stablehlo.multiply %v, %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Silu by the logistic function.
// TOLERANCE: 2e-6
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.composite "tpuc.silu" %arg0
// CHECK-NEXT: return
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %l = stablehlo.logistic %x : tensor<4x8xf32>
  %y = stablehlo.multiply %l, %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Silu by an exponential, as a quotient.
// TOLERANCE: 2e-6
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.composite "tpuc.silu" %arg0
// CHECK-NEXT: return
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<4x8xf32>
  %n = stablehlo.negate %x : tensor<4x8xf32>
  %e = stablehlo.exponential %n : tensor<4x8xf32>
  %d = stablehlo.add %e, %one : tensor<4x8xf32>
  %y = stablehlo.divide %x, %d : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Silu of a sum of two tensors, which the function does not begin before.
// TOLERANCE: 2e-6
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %arg0, %arg1
// CHECK-NEXT: %[[SILU:.*]] = stablehlo.composite "tpuc.silu" %[[SUM]]
// CHECK-NEXT: stablehlo.multiply %[[SILU]], %arg1
func.func @main(%x: tensor<4x8xf32>, %w: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %s = stablehlo.add %x, %w : tensor<4x8xf32>
  %l = stablehlo.logistic %s : tensor<4x8xf32>
  %g = stablehlo.multiply %s, %l : tensor<4x8xf32>
  %y = stablehlo.multiply %g, %w : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// Quick gelu, whose factor of 1.702 makes it another function.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c = stablehlo.constant dense<1.702> : tensor<4x8xf32>
  %z = stablehlo.multiply %x, %c : tensor<4x8xf32>
  %l = stablehlo.logistic %z : tensor<4x8xf32>
  %y = stablehlo.multiply %x, %l : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// The sigmoid is an output too.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %l = stablehlo.logistic %x : tensor<4x8xf32>
  %y = stablehlo.multiply %x, %l : tensor<4x8xf32>
  return %y, %l : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// The gate is of another tensor.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>, %w: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %l = stablehlo.logistic %w : tensor<4x8xf32>
  %y = stablehlo.multiply %x, %l : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// A root of two in bf16.
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<4x8xf32>
  %root = stablehlo.constant dense<1.4140625> : tensor<4x8xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4x8xf32>
  %h = stablehlo.multiply %x, %half : tensor<4x8xf32>
  %z = stablehlo.divide %x, %root : tensor<4x8xf32>
  %e = chlo.erf %z : tensor<4x8xf32> -> tensor<4x8xf32>
  %s = stablehlo.add %one, %e : tensor<4x8xf32>
  %y = stablehlo.multiply %h, %s : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// In bf16.
// TOLERANCE: 3e-2
// CHECK-LABEL: func.func @main
// CHECK-NOT: composite
func.func @main(%x: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  %l = stablehlo.logistic %x : tensor<4x8xbf16>
  %y = stablehlo.multiply %l, %x : tensor<4x8xbf16>
  return %y : tensor<4x8xbf16>
}

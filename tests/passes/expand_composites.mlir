// RUN: tpuc opt --passes 'expand-composites' --target v5p %s | filecheck %s

// Two of one kind share what they stand for, which goes.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.logistic %arg0
// CHECK-NEXT: %[[FIRST:.*]] = stablehlo.multiply
// CHECK-NEXT: stablehlo.logistic %[[FIRST]]
// CHECK-NEXT: %[[SECOND:.*]] = stablehlo.multiply
// CHECK-NEXT: return %[[SECOND]]
// CHECK-NOT: func.func
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.composite "tpuc.silu" %x {decomposition = @tpuc.silu.0} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc(""("silu.py":3:0))
  %1 = stablehlo.composite "tpuc.silu" %0 {decomposition = @tpuc.silu.0} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc(""("silu.py":3:0))
  return %1 : tensor<4x8xf32>
}
func.func private @tpuc.silu.0(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.logistic %x : tensor<4x8xf32> loc(unknown)
  %1 = stablehlo.multiply %x, %0 : tensor<4x8xf32> loc(unknown)
  return %1 : tensor<4x8xf32> loc(unknown)
}

// -----

// Attention is left to attention-kernel, and what is not ours to XLA.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "tpuc.attention" %arg0, %arg0, %arg0
// CHECK: stablehlo.composite "another.norm"
// CHECK-NOT: tpuc.softmax
// CHECK: func.func private @attention
// CHECK: func.func private @norm
// CHECK-NOT: func.func private @softmax
func.func @main(%x: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  %0 = stablehlo.composite "tpuc.attention" %x, %x, %x {composite_attributes = {is_causal = false, scale = 1.0 : f64}, decomposition = @attention}
      : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  %1 = stablehlo.composite "another.norm" %0 {decomposition = @norm} : (tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  %2 = stablehlo.composite "tpuc.softmax" %1 {decomposition = @softmax} : (tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> loc(""("softmax.py":3:0))
  return %2 : tensor<1x1x4x8xf32>
}
func.func private @attention(%q: tensor<1x1x4x8xf32>, %k: tensor<1x1x4x8xf32>, %v: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  %0 = stablehlo.add %q, %k : tensor<1x1x4x8xf32> loc(unknown)
  %1 = stablehlo.multiply %0, %v : tensor<1x1x4x8xf32> loc(unknown)
  return %1 : tensor<1x1x4x8xf32> loc(unknown)
}
func.func private @norm(%x: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  %0 = stablehlo.tanh %x : tensor<1x1x4x8xf32> loc(unknown)
  return %0 : tensor<1x1x4x8xf32> loc(unknown)
}
func.func private @softmax(%x: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  %0 = stablehlo.exponential %x : tensor<1x1x4x8xf32> loc(unknown)
  return %0 : tensor<1x1x4x8xf32> loc(unknown)
}

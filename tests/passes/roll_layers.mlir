// RUN: tpuc opt --passes 'roll-layers{mode=always least=2},hoist-weights' %s | filecheck %s

// Three layers become a loop; their weights are stacked before the program runs.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}, %w0: tensor<4x4xf32> {tpuc.argument = "weight:w0"}, %w1: tensor<4x4xf32> {tpuc.argument = "weight:w1"}, %w2: tensor<4x4xf32> {tpuc.argument = "weight:w2"}) -> tensor<2x4xf32> {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<2x4xf32> {tpuc.argument = "input:x"}, %arg1: tensor<3x4x4xf32> {tpuc.argument = "prepared:prepare.0"})
  // CHECK: [[R:%.*]]:2 = stablehlo.while([[I:%.*]] = {{%.*}}, [[H:%.*]] = %arg0) : tensor<i32>, tensor<2x4xf32>
  // CHECK: stablehlo.compare LT, [[I]], {{%.*}}
  // CHECK: [[S:%.*]] = stablehlo.dynamic_slice %arg1, [[I]]
  // CHECK: [[W:%.*]] = stablehlo.reshape [[S]]
  // CHECK: [[D:%.*]] = stablehlo.dot_general [[H]], [[W]]
  // CHECK: stablehlo.tanh [[D]]
  // CHECK-NOT: stablehlo.dot_general
  // CHECK: return [[R]]#1
  // CHECK: func.func private @prepare.0
  // CHECK: stablehlo.concatenate
  %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = stablehlo.tanh %0 : tensor<2x4xf32>
  %2 = stablehlo.dot_general %1, %w1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %3 = stablehlo.tanh %2 : tensor<2x4xf32>
  %4 = stablehlo.dot_general %3, %w2, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %5 = stablehlo.tanh %4 : tensor<2x4xf32>
  return %5 : tensor<2x4xf32>
}

// -----

// What all layers read stays outside; a copy of it along dimensions is made inside.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}, %m: tensor<4xf32> {tpuc.argument = "input:m"}, %w0: tensor<4x4xf32> {tpuc.argument = "weight:w0"}, %w1: tensor<4x4xf32> {tpuc.argument = "weight:w1"}) -> tensor<2x4xf32> {
  // CHECK-LABEL: @main
  // CHECK-NOT: stablehlo.broadcast_in_dim
  // CHECK: stablehlo.exponential %arg1
  // CHECK: stablehlo.while
  // CHECK: do {
  // CHECK: stablehlo.broadcast_in_dim
  %e = stablehlo.exponential %m : tensor<4xf32>
  %b = stablehlo.broadcast_in_dim %e, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = stablehlo.multiply %0, %b : tensor<2x4xf32>
  %2 = stablehlo.add %x, %1 : tensor<2x4xf32>
  %3 = stablehlo.dot_general %2, %w1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %4 = stablehlo.multiply %3, %b : tensor<2x4xf32>
  %5 = stablehlo.add %2, %4 : tensor<2x4xf32>
  return %5 : tensor<2x4xf32>
}

// -----

// Hidden states that others read are collected, and what reads them goes behind the loop.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}, %w0: tensor<4x4xf32> {tpuc.argument = "weight:w0"}, %w1: tensor<4x4xf32> {tpuc.argument = "weight:w1"}) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK-LABEL: @main
  // CHECK: [[R:%.*]]:3 = stablehlo.while
  // CHECK: stablehlo.dynamic_update_slice
  // CHECK: return
  // CHECK: [[S:%.*]] = stablehlo.slice [[R]]#2 [0:1, 0:2, 0:4]
  // CHECK: [[H:%.*]] = stablehlo.reshape [[S]]
  // CHECK: stablehlo.cosine [[H]]
  %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = stablehlo.tanh %0 : tensor<2x4xf32>
  %c = stablehlo.cosine %0 : tensor<2x4xf32>
  %2 = stablehlo.dot_general %1, %w1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %3 = stablehlo.tanh %2 : tensor<2x4xf32>
  return %c, %2, %3 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// -----

// What is no weight and differs from layer to layer is stacked by the program itself: a cache of keys.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}, %k0: tensor<2x4xf32> {tpuc.argument = "state:k0"}, %k1: tensor<2x4xf32> {tpuc.argument = "state:k1"}, %w0: tensor<4x4xf32> {tpuc.argument = "weight:w0"}, %w1: tensor<4x4xf32> {tpuc.argument = "weight:w1"}) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK-LABEL: @main
  // CHECK: [[K:%.*]] = stablehlo.concatenate {{%.*}}, {{%.*}}, dim = 0 : (tensor<1x2x4xf32>, tensor<1x2x4xf32>) -> tensor<2x2x4xf32>
  // CHECK: stablehlo.while
  // CHECK: stablehlo.dynamic_slice [[K]]
  %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = stablehlo.add %0, %k0 : tensor<2x4xf32>
  %2 = stablehlo.tanh %1 : tensor<2x4xf32>
  %3 = stablehlo.dot_general %2, %w1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %4 = stablehlo.add %3, %k1 : tensor<2x4xf32>
  %5 = stablehlo.tanh %4 : tensor<2x4xf32>
  return %5, %1, %4 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// -----

// Two chains of layers that go side by side, one reading the other, are one kind of layer with two carried values.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}, %y: tensor<2x4xf32> {tpuc.argument = "input:y"}, %w0: tensor<4x4xf32> {tpuc.argument = "weight:w0"}, %w1: tensor<4x4xf32> {tpuc.argument = "weight:w1"}, %w2: tensor<4x4xf32> {tpuc.argument = "weight:w2"}) -> tensor<2x4xf32> {
  // CHECK-LABEL: @main
  // CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<2x4xf32>, tensor<2x4xf32>
  // CHECK-NOT: stablehlo.tanh
  // CHECK: stablehlo.sine
  %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = stablehlo.sine %y : tensor<2x4xf32>
  %2 = stablehlo.add %0, %1 : tensor<2x4xf32>
  %3 = stablehlo.dot_general %2, %w1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %4 = stablehlo.sine %1 : tensor<2x4xf32>
  %5 = stablehlo.add %3, %4 : tensor<2x4xf32>
  %6 = stablehlo.dot_general %5, %w2, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %7 = stablehlo.sine %4 : tensor<2x4xf32>
  %8 = stablehlo.add %6, %7 : tensor<2x4xf32>
  return %8 : tensor<2x4xf32>
}

// -----

// Layers of other widths, other constants, or other operations are no layers of one kind; a constant that differs is stacked.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}, %w0: tensor<4x4xf32> {tpuc.argument = "weight:w0"}, %w1: tensor<4x6xf32> {tpuc.argument = "weight:w1"}, %w2: tensor<6x6xf32> {tpuc.argument = "weight:w2"}) -> tensor<2x6xf32> {
  // CHECK-LABEL: @main
  // CHECK-NOT: stablehlo.while
  %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %1 = stablehlo.tanh %0 : tensor<2x4xf32>
  %2 = stablehlo.dot_general %1, %w1, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
  %3 = stablehlo.tanh %2 : tensor<2x6xf32>
  %4 = stablehlo.dot_general %3, %w2, contracting_dims = [1] x [0] : (tensor<2x6xf32>, tensor<6x6xf32>) -> tensor<2x6xf32>
  %5 = stablehlo.sine %4 : tensor<2x6xf32>
  return %5 : tensor<2x6xf32>
}

// -----

// A few elementwise operations are no layer.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}) -> tensor<2x4xf32> {
  // CHECK-LABEL: @main
  // CHECK-NOT: stablehlo.while
  %0 = stablehlo.tanh %x : tensor<2x4xf32>
  %1 = stablehlo.tanh %0 : tensor<2x4xf32>
  %2 = stablehlo.tanh %1 : tensor<2x4xf32>
  return %2 : tensor<2x4xf32>
}

// -----

// Regions are compared, and what they capture is read as operands are.
func.func public @main(%x: tensor<4x4xf32> {tpuc.argument = "input:x"}, %p: tensor<i1> {tpuc.argument = "input:p"}, %w0: tensor<4x4xf32> {tpuc.argument = "weight:w0"}, %w1: tensor<4x4xf32> {tpuc.argument = "weight:w1"}) -> tensor<4x4xf32> {
  // CHECK-LABEL: @main
  // CHECK: stablehlo.while
  // CHECK: "stablehlo.if"
  // CHECK-NOT: "stablehlo.if"
  // CHECK: func.func private
  %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "stablehlo.if"(%p) ({
    %8 = stablehlo.add %0, %w0 : tensor<4x4xf32>
    stablehlo.return %8 : tensor<4x4xf32>
  }, {
    stablehlo.return %0 : tensor<4x4xf32>
  }) : (tensor<i1>) -> tensor<4x4xf32>
  %2 = stablehlo.dot_general %1, %w1, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "stablehlo.if"(%p) ({
    %9 = stablehlo.add %2, %w1 : tensor<4x4xf32>
    stablehlo.return %9 : tensor<4x4xf32>
  }, {
    stablehlo.return %2 : tensor<4x4xf32>
  }) : (tensor<i1>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

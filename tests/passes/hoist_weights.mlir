// RUN: tpuc opt --passes 'hoist-weights' %s | filecheck %s

// The scale of a batch norm is prepared; its copy for every row stays.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}, %v: tensor<4xf32> {tpuc.argument = "weight:var"}) -> tensor<2x4xf32> {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<2x4xf32> {tpuc.argument = "input:x"}, %arg1: tensor<4xf32> {tpuc.argument = "prepared:prepare.0"})
  // CHECK-NEXT: [[S:%.*]] = stablehlo.broadcast_in_dim %arg1, dims = [1]
  // CHECK-NEXT: stablehlo.multiply %arg0, [[S]]
  // CHECK: func.func private @prepare.0(%arg0: tensor<4xf32> {tpuc.argument = "weight:var"}) -> tensor<4xf32>
  // CHECK: stablehlo.logistic
  // CHECK: stablehlo.add
  %eps = stablehlo.constant dense<1.0> : tensor<4xf32>
  %0 = stablehlo.logistic %v : tensor<4xf32>
  %1 = stablehlo.add %0, %eps : tensor<4xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %3 = stablehlo.multiply %x, %2 : tensor<2x4xf32>
  return %3 : tensor<2x4xf32>
}

// -----

// A weight that is still read stays an argument; two tensors of one chain are prepared apart.
func.func public @main(%w: tensor<4xf32> {tpuc.argument = "weight:w"}, %x: tensor<4xf32> {tpuc.argument = "input:x"}) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<4xf32> {tpuc.argument = "weight:w"}, %arg1: tensor<4xf32> {tpuc.argument = "input:x"}, %arg2: tensor<4xf32> {tpuc.argument = "prepared:prepare.0"}, %arg3: tensor<4xf32> {tpuc.argument = "prepared:prepare.1"})
  // CHECK-NEXT: stablehlo.add %arg1, %arg0
  // CHECK-NEXT: stablehlo.add %arg1, %arg2
  // CHECK-NEXT: stablehlo.add %arg1, %arg3
  // CHECK-NEXT: return
  // CHECK: @prepare.0(%arg0: tensor<4xf32> {tpuc.argument = "weight:w"})
  // CHECK: @prepare.1(%arg0: tensor<4xf32> {tpuc.argument = "weight:w"})
  %0 = stablehlo.tanh %w : tensor<4xf32>
  %1 = stablehlo.cosine %0 : tensor<4xf32>
  %2 = stablehlo.add %x, %w : tensor<4xf32>
  %3 = stablehlo.add %x, %0 : tensor<4xf32>
  %4 = stablehlo.add %x, %1 : tensor<4xf32>
  return %2, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// An int8 weight stays int8: in f32 the program would read four times as much. Its scales are prepared.
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"}, %w: tensor<4x8xi8> {tpuc.argument = "weight:w"}, %s: tensor<8xf32> {tpuc.argument = "weight:s"}) -> tensor<2x8xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: stablehlo.convert %arg1
  // CHECK: stablehlo.broadcast_in_dim %arg2, dims = [1]
  // CHECK: stablehlo.multiply
  // CHECK: stablehlo.dot_general
  // CHECK: func.func private @prepare.0
  // CHECK-NEXT: stablehlo.negate
  %0 = stablehlo.convert %w : (tensor<4x8xi8>) -> tensor<4x8xf32>
  %1 = stablehlo.negate %s : tensor<8xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %3 = stablehlo.multiply %0, %2 : tensor<4x8xf32>
  %4 = stablehlo.dot_general %x, %3, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  return %4 : tensor<2x8xf32>
}

// -----

// Narrower is prepared; wider, turned or copied is not.
func.func public @main(%x: tensor<3x2xbf16> {tpuc.argument = "input:x"}, %w: tensor<2x3xf32> {tpuc.argument = "weight:w"}, %b: tensor<2xbf16> {tpuc.argument = "weight:b"}) -> (tensor<3x2xbf16>, tensor<3x2xf32>) {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<3x2xbf16> {tpuc.argument = "input:x"}, %arg1: tensor<2xbf16> {tpuc.argument = "weight:b"}, %arg2: tensor<2x3xbf16> {tpuc.argument = "prepared:prepare.0"})
  // CHECK: stablehlo.transpose %arg2
  // CHECK: stablehlo.convert %arg1
  // CHECK: stablehlo.broadcast_in_dim
  // CHECK: func.func private @prepare.0
  // CHECK-NEXT: stablehlo.convert %arg0 : (tensor<2x3xf32>) -> tensor<2x3xbf16>
  %0 = stablehlo.convert %w : (tensor<2x3xf32>) -> tensor<2x3xbf16>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x3xbf16>) -> tensor<3x2xbf16>
  %2 = stablehlo.add %x, %1 : tensor<3x2xbf16>
  %3 = stablehlo.convert %b : (tensor<2xbf16>) -> tensor<2xf32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<2xf32>) -> tensor<3x2xf32>
  return %2, %4 : tensor<3x2xbf16>, tensor<3x2xf32>
}

// -----

// A region that reads a prepared tensor; a reduction, whose own region reads nothing from outside, is prepared.
func.func public @main(%p: tensor<i1> {tpuc.argument = "input:p"}, %w: tensor<4x8xf32> {tpuc.argument = "weight:w"}) -> tensor<4xf32> {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<i1> {tpuc.argument = "input:p"}, %arg1: tensor<4xf32> {tpuc.argument = "prepared:prepare.0"})
  // CHECK: stablehlo.if
  // CHECK: stablehlo.return %arg1
  // CHECK: func.func private @prepare.0
  // CHECK: stablehlo.reduce
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.constant dense<1.0> : tensor<4xf32>
  %2 = "stablehlo.if"(%p) ({
    stablehlo.return %0 : tensor<4xf32>
  }, {
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// What depends on an input stays, and so do constants, which the compiler folds; what nobody says to be a weight is none.
func.func public @main(%x: tensor<4xf32> {tpuc.argument = "input:x"}, %y: tensor<4xf32> {tpuc.argument = "state:y"}, %w: tensor<4xf32> {tpuc.argument = "weight:w"}) -> tensor<4xf32> {
  // CHECK: stablehlo.tanh
  // CHECK: stablehlo.cosine
  // CHECK-NOT: @prepare
  %c = stablehlo.constant dense<2.0> : tensor<4xf32>
  %0 = stablehlo.tanh %y : tensor<4xf32>
  %1 = stablehlo.cosine %c : tensor<4xf32>
  %2 = stablehlo.multiply %x, %0 : tensor<4xf32>
  %3 = stablehlo.add %2, %w : tensor<4xf32>
  %4 = stablehlo.add %3, %1 : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// -----

// What is computed twice of one weight is prepared once; of two weights, twice.
func.func public @main(%x: tensor<4xf32> {tpuc.argument = "input:x"}, %w: tensor<4xf32> {tpuc.argument = "weight:w"}, %v: tensor<4xf32> {tpuc.argument = "weight:v"}) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // CHECK-LABEL: func.func public @main(%arg0: tensor<4xf32> {tpuc.argument = "input:x"}, %arg1: tensor<4xf32> {tpuc.argument = "prepared:prepare.0"}, %arg2: tensor<4xf32> {tpuc.argument = "prepared:prepare.1"})
  // CHECK-NEXT: stablehlo.add %arg0, %arg1
  // CHECK-NEXT: stablehlo.add %arg0, %arg1
  // CHECK-NEXT: stablehlo.add %arg0, %arg2
  // CHECK-NOT: @prepare.2
  %0 = stablehlo.tanh %w : tensor<4xf32>
  %1 = stablehlo.tanh %w : tensor<4xf32>
  %2 = stablehlo.tanh %v : tensor<4xf32>
  %3 = stablehlo.add %x, %0 : tensor<4xf32>
  %4 = stablehlo.add %x, %1 : tensor<4xf32>
  %5 = stablehlo.add %x, %2 : tensor<4xf32>
  return %3, %4, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// RUN: tpuc opt --passes 'pad-dynamic' %s | filecheck %s

// A sum along a dimension that varies: one mask, of the sizes alone.
// SIZES: seq=4
func.func @main(%x: tensor<2x6xf32> {tpuc.dims = "2,seq"}) -> tensor<2xf32> attributes {tpuc.sizes = ["seq=1..6"]} {
  // CHECK: @main(%arg0: tensor<2x6xf32>, %arg1: tensor<i32> {tpuc.argument = "size:seq"})
  // CHECK: %[[MASK:.*]] = stablehlo.compare LT, %{{.*}}, %{{.*}}, SIGNED : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi1>
  // CHECK: %[[FULL:.*]] = stablehlo.broadcast_in_dim %[[MASK]], dims = [1]
  // CHECK: %[[KEPT:.*]] = stablehlo.select %[[FULL]], %arg0, %{{.*}}
  // CHECK: stablehlo.reduce(%[[KEPT]]
  // CHECK-NOT: tpuc.dims
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<2x6xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func @reference(%x: tensor<2x4xf32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// Elements next to padding, and a dimension that does not vary: nothing to do.
// SIZES: seq=4
// EXACT
func.func @main(%x: tensor<6x3xf32> {tpuc.dims = "seq,3"}) -> (tensor<6xf32>, tensor<3x6xf32>) attributes {tpuc.sizes = ["seq=1..6"]} {
  // CHECK-NOT: select
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] {tpuc.dims = ["seq"]} : (tensor<6x3xf32>, tensor<f32>) -> tensor<6xf32>
  %1 = stablehlo.transpose %x, dims = [1, 0] {tpuc.dims = ["3,seq"]} : (tensor<6x3xf32>) -> tensor<3x6xf32>
  %2 = stablehlo.negate %1 {tpuc.dims = ["3,seq"]} : tensor<3x6xf32>
  return %0, %2 : tensor<6xf32>, tensor<3x6xf32>
}
func.func @reference(%x: tensor<4x3xf32>) -> (tensor<4xf32>, tensor<3x4xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %2 = stablehlo.negate %1 : tensor<3x4xf32>
  return %0, %2 : tensor<4xf32>, tensor<3x4xf32>
}

// -----

// A product along a dimension that varies: both sides are masked, since zero times NaN is NaN.
// SIZES: seq=4
func.func @main(%x: tensor<2x6xf32> {tpuc.dims = "2,seq"}, %y: tensor<6x3xf32> {tpuc.dims = "seq,3"}) -> tensor<2x3xf32> attributes {tpuc.sizes = ["seq=1..6"]} {
  // CHECK: %[[X:.*]] = stablehlo.select %{{.*}}, %arg0, %{{.*}}
  // CHECK: %[[Y:.*]] = stablehlo.select %{{.*}}, %arg1, %{{.*}}
  // CHECK: stablehlo.dot_general %[[X]], %[[Y]]
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<2x6xf32>, tensor<6x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
func.func @reference(%x: tensor<2x4xf32>, %y: tensor<4x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// A size as a value, in the forms that constants take.
// SIZES: seq=4
func.func @main(%x: tensor<6xf32> {tpuc.dims = "seq"}) -> (tensor<6xf32>, tensor<6xi32>, tensor<2xi32>) attributes {tpuc.sizes = ["seq=1..6"]} {
  // CHECK: stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
  // CHECK: stablehlo.sqrt
  %c = stablehlo.constant {tpuc.affine = ["seq"], tpuc.function = "sqrt"} dense<2.44949> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %c, dims = [] {tpuc.dims = ["seq"]} : (tensor<f32>) -> tensor<6xf32>
  %1 = stablehlo.divide %x, %0 {tpuc.dims = ["seq"]} : tensor<6xf32>
  %2 = stablehlo.constant {tpuc.dims = ["seq"], tpuc.affine = ["seq-1", "-1"], tpuc.function = "identity"} dense<[5, 4, 3, 2, 1, 0]> : tensor<6xi32>
  %3 = stablehlo.constant {tpuc.elements = ["3", "2*seq"], tpuc.function = "identity"} dense<[3, 12]> : tensor<2xi32>
  return %1, %2, %3 : tensor<6xf32>, tensor<6xi32>, tensor<2xi32>
}
func.func @reference(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi32>, tensor<2xi32>) {
  %c = stablehlo.constant dense<2.0> : tensor<4xf32>
  %1 = stablehlo.divide %x, %c : tensor<4xf32>
  %2 = stablehlo.constant dense<[3, 2, 1, 0]> : tensor<4xi32>
  %3 = stablehlo.constant dense<[3, 8]> : tensor<2xi32>
  return %1, %2, %3 : tensor<4xf32>, tensor<4xi32>, tensor<2xi32>
}

// -----

// Two dimensions become one, with padding in between, and two again: a softmax over both needs one mask, no move.
// SIZES: batch=2 seq=3
func.func @main(%x: tensor<3x4xf32> {tpuc.dims = "batch,seq"}) -> (tensor<f32>, tensor<3x4xf32>) attributes {tpuc.sizes = ["batch=1..3", "seq=1..4"]} {
  // CHECK: stablehlo.and %{{.*}}, %{{.*}} : tensor<12xi1>
  // CHECK-NOT: stablehlo.gather
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reshape %x {tpuc.dims = ["batch*seq"]} : (tensor<3x4xf32>) -> tensor<12xf32>
  %1 = stablehlo.reduce(%0 init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<12xf32>, tensor<f32>) -> tensor<f32>
  %2 = stablehlo.reshape %0 {tpuc.dims = ["batch,seq"]} : (tensor<12xf32>) -> tensor<3x4xf32>
  return %1, %2 : tensor<f32>, tensor<3x4xf32>
}
func.func @reference(%x: tensor<2x3xf32>) -> (tensor<f32>, tensor<2x3xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %1 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
  return %1, %x : tensor<f32>, tensor<2x3xf32>
}

// -----

// What is returned, and what is counted along, has its padding last: elements move.
// SIZES: batch=2 seq=3
// EXACT
func.func @main(%x: tensor<3x4xf32> {tpuc.dims = "batch,seq"}) -> (tensor<12xf32>, tensor<12xi32>) attributes {tpuc.sizes = ["batch=1..3", "seq=1..4"]} {
  // CHECK: "stablehlo.gather"
  %0 = stablehlo.reshape %x {tpuc.dims = ["batch*seq"]} : (tensor<3x4xf32>) -> tensor<12xf32>
  %1 = stablehlo.iota dim = 0 {tpuc.dims = ["batch*seq"]} : tensor<12xi32>
  return %0, %1 : tensor<12xf32>, tensor<12xi32>
}
func.func @reference(%x: tensor<2x3xf32>) -> (tensor<6xf32>, tensor<6xi32>) {
  %0 = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<6xf32>
  %1 = stablehlo.iota dim = 0 : tensor<6xi32>
  return %0, %1 : tensor<6xf32>, tensor<6xi32>
}

// -----

// The last element, and all but the first.
// SIZES: seq=4
// EXACT
func.func @main(%x: tensor<6x2xf32> {tpuc.dims = "seq,2"}) -> (tensor<1x2xf32>, tensor<5x2xf32>) attributes {tpuc.sizes = ["seq=1..6"]} {
  // CHECK: stablehlo.dynamic_slice
  // CHECK: stablehlo.slice %arg0 [1:6, 0:2]
  %0 = stablehlo.slice %x [5:6, 0:2] {tpuc.start_indices = ["seq-1", "0"], tpuc.limit_indices = ["seq", "2"]} : (tensor<6x2xf32>) -> tensor<1x2xf32>
  %1 = stablehlo.slice %x [1:6, 0:2] {tpuc.dims = ["seq-1,2"], tpuc.limit_indices = ["seq", "2"]} : (tensor<6x2xf32>) -> tensor<5x2xf32>
  return %0, %1 : tensor<1x2xf32>, tensor<5x2xf32>
}
func.func @reference(%x: tensor<4x2xf32>) -> (tensor<1x2xf32>, tensor<3x2xf32>) {
  %0 = stablehlo.slice %x [3:4, 0:2] : (tensor<4x2xf32>) -> tensor<1x2xf32>
  %1 = stablehlo.slice %x [1:4, 0:2] : (tensor<4x2xf32>) -> tensor<3x2xf32>
  return %0, %1 : tensor<1x2xf32>, tensor<3x2xf32>
}

// -----

// Each operand of a concatenation is written over the padding of the one before.
// SIZES: seq=4 more=1
// EXACT
func.func @main(%x: tensor<6xf32> {tpuc.dims = "seq"}, %y: tensor<3xf32> {tpuc.dims = "more"}, %z: tensor<1xf32>) -> (tensor<10xf32>, tensor<7xf32>) attributes {tpuc.sizes = ["seq=1..6", "more=1..3"]} {
  // CHECK-COUNT-2: stablehlo.dynamic_update_slice
  // CHECK-NOT: stablehlo.dynamic_update_slice
  %0 = stablehlo.concatenate %x, %y, %z, dim = 0 {tpuc.dims = ["more+seq+1"]} : (tensor<6xf32>, tensor<3xf32>, tensor<1xf32>) -> tensor<10xf32>
  %1 = stablehlo.concatenate %z, %x, dim = 0 {tpuc.dims = ["seq+1"]} : (tensor<1xf32>, tensor<6xf32>) -> tensor<7xf32>
  return %0, %1 : tensor<10xf32>, tensor<7xf32>
}
func.func @reference(%x: tensor<4xf32>, %y: tensor<1xf32>, %z: tensor<1xf32>) -> (tensor<6xf32>, tensor<5xf32>) {
  %0 = stablehlo.concatenate %x, %y, %z, dim = 0 : (tensor<4xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<6xf32>
  %1 = stablehlo.concatenate %z, %x, dim = 0 : (tensor<1xf32>, tensor<4xf32>) -> tensor<5xf32>
  return %0, %1 : tensor<6xf32>, tensor<5xf32>
}

// -----

// A reversal, and padding of the program's own.
// SIZES: seq=4
// EXACT
func.func @main(%x: tensor<6xf32> {tpuc.dims = "seq"}) -> (tensor<6xf32>, tensor<9xf32>) attributes {tpuc.sizes = ["seq=1..6"]} {
  // CHECK: stablehlo.reverse
  // CHECK: stablehlo.dynamic_slice
  // CHECK: stablehlo.select
  // CHECK: stablehlo.pad
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.reverse %x, dims = [0] {tpuc.dims = ["seq"]} : tensor<6xf32>
  %1 = stablehlo.pad %x, %one, low = [2], high = [1], interior = [0] {tpuc.dims = ["seq+3"]} : (tensor<6xf32>, tensor<f32>) -> tensor<9xf32>
  return %0, %1 : tensor<6xf32>, tensor<9xf32>
}
func.func @reference(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<7xf32>) {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.reverse %x, dims = [0] : tensor<4xf32>
  %1 = stablehlo.pad %x, %one, low = [2], high = [1], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<7xf32>
  return %0, %1 : tensor<4xf32>, tensor<7xf32>
}

// -----

// Windows: a running sum, whose window grows with the size, and pooling with a stride.
// SIZES: seq=4
func.func @main(%x: tensor<6xf32> {tpuc.dims = "seq"}) -> (tensor<6xf32>, tensor<3xf32>) attributes {tpuc.sizes = ["seq=2..6"]} {
  // CHECK: %[[KEPT:.*]] = stablehlo.select
  // CHECK: "stablehlo.reduce_window"(%[[KEPT]]
  // CHECK: "stablehlo.reduce_window"(%[[KEPT]]
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[5, 0]]> : tensor<1x2xi64>, window_dimensions = array<i64: 6>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {tpuc.dims = ["seq"], tpuc.padding = ["seq-1", "0"], tpuc.window_dimensions = ["seq"]} : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
  %1 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[1, 0]]> : tensor<1x2xi64>, window_dimensions = array<i64: 3>, window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {tpuc.dims = ["seq//2"]} : (tensor<6xf32>, tensor<f32>) -> tensor<3xf32>
  return %0, %1 : tensor<6xf32>, tensor<3xf32>
}
func.func @reference(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[3, 0]]> : tensor<1x2xi64>, window_dimensions = array<i64: 4>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[1, 0]]> : tensor<1x2xi64>, window_dimensions = array<i64: 3>, window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<2xf32>
  return %0, %1 : tensor<4xf32>, tensor<2xf32>
}

// -----

// A sort compares first what is padding: NaN and the largest numbers come before it.
// SIZES: seq=4
// EXACT
func.func @main(%x: tensor<6xf32> {tpuc.dims = "seq"}) -> tensor<6xf32> attributes {tpuc.sizes = ["seq=1..6"]} {
  // CHECK: "stablehlo.sort"(%{{.*}}, %arg0)
  // CHECK: stablehlo.compare GT, %{{.*}}, %{{.*}}, TOTALORDER
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {tpuc.dims = ["seq"]} : (tensor<6xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
func.func @reference(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A loop as long as the size.
// SIZES: seq=4
func.func @main(%x: tensor<6xf32> {tpuc.dims = "seq"}) -> (tensor<i32>, tensor<f32>) attributes {tpuc.sizes = ["seq=1..6"]} {
  // CHECK: stablehlo.while
  // CHECK: stablehlo.compare LT, %{{.*}}, %arg1
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %0:2 = stablehlo.while(%i = %zero, %total = %none) : tensor<i32>, tensor<f32>
  cond {
    %n = stablehlo.constant {tpuc.affine = ["seq"], tpuc.function = "identity"} dense<6> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %e = stablehlo.dynamic_slice %x, %i, sizes = [1] : (tensor<6xf32>, tensor<i32>) -> tensor<1xf32>
    %s = stablehlo.reshape %e : (tensor<1xf32>) -> tensor<f32>
    %t = stablehlo.add %total, %s : tensor<f32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %t : tensor<i32>, tensor<f32>
  }
  return %0#0, %0#1 : tensor<i32>, tensor<f32>
}
func.func @reference(%x: tensor<4xf32>) -> (tensor<i32>, tensor<f32>) {
  %four = stablehlo.constant dense<4> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %four, %0 : tensor<i32>, tensor<f32>
}

// -----

// A module without sizes stays as it is.
func.func @main(%x: tensor<6xf32>) -> tensor<f32> {
  // CHECK: func.func @main(%arg0: tensor<6xf32>) -> tensor<f32> {
  // CHECK-NEXT: stablehlo.constant
  // CHECK-NEXT: stablehlo.reduce(%arg0
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<6xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// A stride that varies, as a diagonal has: a gather.
// SIZES: seq=3
// EXACT
func.func @main(%x: tensor<4x4xf32> {tpuc.dims = "seq,seq"}) -> tensor<4xf32> attributes {tpuc.sizes = ["seq=1..4"]} {
  // CHECK-COUNT-2: "stablehlo.gather"
  %0 = stablehlo.reshape %x {tpuc.dims = ["seq*seq"]} : (tensor<4x4xf32>) -> tensor<16xf32>
  %1 = stablehlo.slice %0 [0:16:5] {tpuc.dims = ["seq"], tpuc.limit_indices = ["seq*seq"], tpuc.strides = ["seq+1"]} : (tensor<16xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @reference(%x: tensor<3x3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.reshape %x : (tensor<3x3xf32>) -> tensor<9xf32>
  %1 = stablehlo.slice %0 [0:9:4] : (tensor<9xf32>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}

// -----

// One size is written into the middle of another: only its elements are.
// SIZES: seq=3
// EXACT
func.func @main(%x: tensor<6xf32> {tpuc.dims = "seq+2"}, %y: tensor<4xf32> {tpuc.dims = "seq"}) -> tensor<6xf32> attributes {tpuc.sizes = ["seq=1..4"]} {
  // CHECK: stablehlo.pad %arg0
  // CHECK: stablehlo.dynamic_update_slice
  // CHECK: stablehlo.select
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %x, %y, %one {tpuc.dims = ["seq+2"]} : (tensor<6xf32>, tensor<4xf32>, tensor<i32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
func.func @reference(%x: tensor<5xf32>, %y: tensor<3xf32>) -> tensor<5xf32> {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %x, %y, %one : (tensor<5xf32>, tensor<3xf32>, tensor<i32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

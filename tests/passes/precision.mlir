// RUN: tpuc opt --passes 'precision{mode=bf16}' %s | filecheck %s

// A product multiplies bf16 and adds in f32; the bias, a vector, stays in f32, and so does an output.
func.func public @main(%x: tensor<4x8xf32> {tpuc.argument = "input:x"}, %w: tensor<8x6xf32> {tpuc.argument = "weight:w"}, %b: tensor<6xf32> {tpuc.argument = "weight:b"}) -> tensor<4x6xf32> {
  // TOLERANCE: 4e-2
  // CHECK-LABEL: func.func public @main(%arg0: tensor<4x8xf32> {{.*}}) -> tensor<4x6xf32>
  // CHECK-DAG: [[X:%.*]] = stablehlo.convert %arg0 : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  // CHECK-DAG: [[W:%.*]] = stablehlo.convert %arg1 : (tensor<8x6xf32>) -> tensor<8x6xbf16>
  // CHECK: [[P:%.*]] = stablehlo.dot_general [[X]], [[W]], contracting_dims = [1] x [0] : (tensor<4x8xbf16>, tensor<8x6xbf16>) -> tensor<4x6xf32>
  // CHECK-NEXT: [[B:%.*]] = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<6xf32>) -> tensor<4x6xf32>
  // CHECK-NEXT: [[R:%.*]] = stablehlo.add [[P]], [[B]] : tensor<4x6xf32>
  // CHECK-NEXT: return [[R]]
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<6xf32>) -> tensor<4x6xf32>
  %2 = stablehlo.add %0, %1 : tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// -----

// A table is stored in bf16 and its rows are gathered as such; what moves on the way to a product moves in bf16.
func.func public @main(%ids: tensor<4x1xi32> {tpuc.argument = "input:ids"}, %t: tensor<9x8xf32> {tpuc.argument = "weight:t"}, %w: tensor<8x6xf32> {tpuc.argument = "weight:w"}) -> tensor<6x4xf32> {
  // TOLERANCE: 4e-2
  // CHECK-LABEL: func.func public @main
  // CHECK: "stablehlo.gather"
  // CHECK-SAME: (tensor<9x8xbf16>, tensor<4x1xi32>) -> tensor<4x8xbf16>
  // CHECK-NEXT: [[F:%.*]] = stablehlo.convert
  // CHECK-NEXT: [[G:%.*]] = stablehlo.tanh [[F]] : tensor<4x8xf32>
  // CHECK-NEXT: [[N:%.*]] = stablehlo.convert [[G]] : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  // CHECK-NEXT: [[T:%.*]] = stablehlo.transpose [[N]], dims = [1, 0] : (tensor<4x8xbf16>) -> tensor<8x4xbf16>
  // CHECK-NEXT: stablehlo.dot_general {{%.*}}, [[T]], contracting_dims = [0] x [0] : (tensor<8x6xbf16>, tensor<8x4xbf16>) -> tensor<6x4xf32>
  %0 = "stablehlo.gather"(%t, %ids) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<9x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>
  %1 = stablehlo.tanh %0 : tensor<4x8xf32>
  %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %3 = stablehlo.dot_general %w, %2, contracting_dims = [0] x [0] : (tensor<8x6xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  return %3 : tensor<6x4xf32>
}

// -----

// A residual is stored in bf16; the statistics of the norm that follows are f32, and so is what they scale until a
// product reads it.
func.func public @main(%x: tensor<4x8xf32> {tpuc.argument = "input:x"}, %w: tensor<8x8xf32> {tpuc.argument = "weight:w"}) -> tensor<4x8xf32> {
  // TOLERANCE: 8e-2
  // CHECK-LABEL: func.func public @main
  // CHECK: [[R:%.*]] = stablehlo.add {{.*}} : tensor<4x8xf32>
  // CHECK-NEXT: [[N:%.*]] = stablehlo.convert [[R]] : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  // CHECK-NEXT: [[F:%.*]] = stablehlo.convert [[N]] : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  // CHECK: [[Q:%.*]] = stablehlo.multiply [[F]], [[F]] : tensor<4x8xf32>
  // CHECK-NEXT: [[S:%.*]] = stablehlo.reduce([[Q]] init: {{.*}}) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  // CHECK-NEXT: [[I:%.*]] = stablehlo.logistic [[S]] : tensor<4xf32>
  // CHECK-NEXT: [[C:%.*]] = stablehlo.broadcast_in_dim [[I]], dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: [[Y:%.*]] = stablehlo.multiply [[F]], [[C]] : tensor<4x8xf32>
  // CHECK-NEXT: [[M:%.*]] = stablehlo.convert [[Y]] : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  // CHECK-NEXT: [[P:%.*]] = stablehlo.dot_general [[M]], {{.*}} -> tensor<4x8xf32>
  // CHECK-NEXT: stablehlo.add [[F]], [[P]] : tensor<4x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %r = stablehlo.add %0, %x : tensor<4x8xf32>
  %1 = stablehlo.multiply %r, %r : tensor<4x8xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = stablehlo.logistic %2 : tensor<4xf32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %5 = stablehlo.multiply %r, %4 : tensor<4x8xf32>
  %6 = stablehlo.dot_general %5, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %7 = stablehlo.add %r, %6 : tensor<4x8xf32>
  return %7 : tensor<4x8xf32>
}

// -----

// Scores of a softmax stay in f32, and so does a mask that bf16 does not reach; the weights of the softmax go to a product.
func.func public @main(%q: tensor<4x8xf32> {tpuc.argument = "input:q"}, %m: tensor<4x4xi1> {tpuc.argument = "input:m"}) -> tensor<4x8xf32> {
  // TOLERANCE: 8e-2
  // CHECK-LABEL: func.func public @main
  // CHECK: [[S:%.*]] = stablehlo.dot_general {{.*}} : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x4xf32>
  // CHECK-NEXT: [[M:%.*]] = stablehlo.select %arg1, {{.*}} : tensor<4x4xi1>, tensor<4x4xf32>
  // CHECK-NEXT: [[A:%.*]] = stablehlo.add [[S]], [[M]] : tensor<4x4xf32>
  // CHECK-NEXT: stablehlo.reduce([[A]] init: {{.*}}) applies stablehlo.maximum
  // CHECK: stablehlo.exponential {{.*}} : tensor<4x4xf32>
  // CHECK: [[W:%.*]] = stablehlo.divide {{.*}} : tensor<4x4xf32>
  // CHECK-NEXT: [[N:%.*]] = stablehlo.convert [[W]] : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  // CHECK-NEXT: stablehlo.dot_general [[N]], {{.*}} : (tensor<4x4xbf16>, tensor<4x8xbf16>) -> tensor<4x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4x4xf32>
  %least = stablehlo.constant dense<-3.40282347E+38> : tensor<4x4xf32>
  %0 = stablehlo.dot_general %q, %q, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  %mask = stablehlo.select %m, %zeros, %least : tensor<4x4xi1>, tensor<4x4xf32>
  %1 = stablehlo.add %0, %mask : tensor<4x4xf32>
  %2 = stablehlo.reduce(%1 init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %4 = stablehlo.subtract %1, %3 : tensor<4x4xf32>
  %5 = stablehlo.exponential %4 : tensor<4x4xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %7 = stablehlo.broadcast_in_dim %6, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %8 = stablehlo.divide %5, %7 : tensor<4x4xf32>
  %9 = stablehlo.dot_general %8, %q, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %9 : tensor<4x8xf32>
}

// -----

// Positions and frequencies stay exact, although a product multiplies them; so does a product that asks for more.
func.func public @main(%p: tensor<4x1xf32> {tpuc.argument = "input:p"}, %f: tensor<1x8xf32> {tpuc.argument = "weight:f"}, %w: tensor<8x4xf32> {tpuc.argument = "weight:w"}) -> (tensor<4x8xf32>, tensor<4x4xf32>) {
  // CHECK-LABEL: func.func public @main
  // CHECK-NOT: bf16
  %0 = stablehlo.dot_general %p, %f, contracting_dims = [1] x [0] : (tensor<4x1xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.cosine %0 : tensor<4x8xf32>
  %2 = stablehlo.slice %w [0:1, 0:4] : (tensor<8x4xf32>) -> tensor<1x4xf32>
  %3 = stablehlo.dot_general %p, %2, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x1xf32>, tensor<1x4xf32>) -> tensor<4x4xf32>
  return %1, %3 : tensor<4x8xf32>, tensor<4x4xf32>
}

// -----

// The maxima of windows are pooled in bf16 between convolutions.
func.func public @main(%x: tensor<1x6x6x2xf32> {tpuc.argument = "input:x"}, %k: tensor<3x3x2x2xf32> {tpuc.argument = "weight:k"}) -> tensor<1x1x1x2xf32> {
  // TOLERANCE: 1e-1
  // CHECK-LABEL: func.func public @main
  // CHECK: stablehlo.convolution{{.*}} : (tensor<1x6x6x2xbf16>, tensor<3x3x2x2xbf16>) -> tensor<1x4x4x2xf32>
  // CHECK: "stablehlo.reduce_window"
  // CHECK: ^bb0({{.*}}: tensor<bf16>, {{.*}}: tensor<bf16>):
  // CHECK: (tensor<1x4x4x2xbf16>, tensor<bf16>) -> tensor<1x3x3x2xbf16>
  // CHECK: stablehlo.convolution{{.*}} : (tensor<1x3x3x2xbf16>, tensor<3x3x2x2xbf16>) -> tensor<1x1x1x2xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x6x2xf32>, tensor<3x3x2x2xf32>) -> tensor<1x4x4x2xf32>
  %1 = "stablehlo.reduce_window"(%0, %low) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2, 2, 1>} : (tensor<1x4x4x2xf32>, tensor<f32>) -> tensor<1x3x3x2xf32>
  %2 = stablehlo.convolution(%1, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x3x2xf32>, tensor<3x3x2x2xf32>) -> tensor<1x1x1x2xf32>
  return %2 : tensor<1x1x1x2xf32>
}

// -----

// In a loop, products multiply bf16 too; what goes around keeps its type.
func.func public @main(%x: tensor<4x4xf32> {tpuc.argument = "input:x"}, %w: tensor<4x4xf32> {tpuc.argument = "weight:w"}) -> tensor<4x4xf32> {
  // TOLERANCE: 1e-1
  // CHECK-LABEL: func.func public @main
  // CHECK: stablehlo.while
  // CHECK-SAME: tensor<i32>, tensor<4x4xf32>
  // CHECK: stablehlo.dot_general {{.*}} : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<4x4xf32>
    cond {
      %less = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %p = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      %s = stablehlo.tanh %p : tensor<4x4xf32>
      stablehlo.return %next, %s : tensor<i32>, tensor<4x4xf32>
    }
  return %r#1 : tensor<4x4xf32>
}

// -----

// A composite of attention takes and gives bf16; its mask stays.
func.func public @main(%q: tensor<1x2x4x8xf32> {tpuc.argument = "input:q"}, %m: tensor<1x1x4x4xf32> {tpuc.argument = "input:m"}) -> tensor<1x2x4x8xf32> {
  // TOLERANCE: 5e-2
  // CHECK-LABEL: func.func public @main
  // CHECK: stablehlo.composite "tpuc.attention"
  // CHECK-SAME: (tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x1x4x4xf32>) -> tensor<1x2x4x8xbf16>
  // CHECK-NEXT: stablehlo.convert {{.*}} -> tensor<1x2x4x8xf32>
  %0 = stablehlo.composite "tpuc.attention" %q, %q, %q, %m {composite_attributes = {is_causal = false, scale = 1.0 : f64}, decomposition = @old, version = 1 : i32} : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x1x4x4xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}
func.func private @old(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x4x8xf32>, %v: tensor<1x2x4x8xf32>, %m: tensor<1x1x4x4xf32>) -> tensor<1x2x4x8xf32> {
  return %v : tensor<1x2x4x8xf32>
}
func.func public @reference(%q: tensor<1x2x4x8xf32>, %m: tensor<1x1x4x4xf32>) -> tensor<1x2x4x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.dot_general %q, %q, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x4xf32>
  %mask = stablehlo.broadcast_in_dim %m, dims = [0, 1, 2, 3] : (tensor<1x1x4x4xf32>) -> tensor<1x2x4x4xf32>
  %1 = stablehlo.add %0, %mask : tensor<1x2x4x4xf32>
  %2 = stablehlo.reduce(%1 init: %low) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x2x4xf32>) -> tensor<1x2x4x4xf32>
  %4 = stablehlo.subtract %1, %3 : tensor<1x2x4x4xf32>
  %5 = stablehlo.exponential %4 : tensor<1x2x4x4xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4xf32>
  %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1, 2] : (tensor<1x2x4xf32>) -> tensor<1x2x4x4xf32>
  %8 = stablehlo.divide %5, %7 : tensor<1x2x4x4xf32>
  %9 = stablehlo.dot_general %8, %q, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<1x2x4x4xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %9 : tensor<1x2x4x8xf32>
}

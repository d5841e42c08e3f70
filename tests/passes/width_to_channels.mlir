// RUN: tpuc opt --passes 'width-to-channels{always=true}' %s | filecheck %s

// Two convolutions of 64 channels, the second with a stride: pairs of columns are channels in between.
// TOLERANCE: 1e-3
func.func public @main(%x: tensor<1x3x8x8xf32> {tpuc.argument = "input:x"}, %w: tensor<64x3x3x3xf32> {tpuc.argument = "weight:w"}, %v: tensor<64x64x3x3xf32> {tpuc.argument = "weight:v"}, %u: tensor<128x64x1x1xf32> {tpuc.argument = "weight:u"}) -> tensor<1x128x4x4xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: stablehlo.convolution(%arg0, {{.*}} window = {stride = [1, 2], pad = {{\[\[}}1, 1], [1, 1]]
  // CHECK-SAME: (tensor<1x3x8x8xf32>, tensor<128x3x3x4xf32>) -> tensor<1x128x8x4xf32>
  // CHECK: stablehlo.tanh {{.*}} : tensor<1x128x8x4xf32>
  // CHECK: stablehlo.convolution({{.*}} window = {stride = [1, 1], pad = {{\[\[}}1, 1], [1, 1]]
  // CHECK-SAME: (tensor<1x128x8x4xf32>, tensor<128x128x3x3xf32>) -> tensor<1x128x8x4xf32>
  // CHECK: stablehlo.convolution({{.*}} window = {stride = [2, 1]
  // CHECK-SAME: (tensor<1x128x8x4xf32>, tensor<128x128x1x1xf32>) -> tensor<1x128x4x4xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<64x3x3x3xf32>) -> tensor<1x64x8x8xf32>
  %1 = stablehlo.tanh %0 : tensor<1x64x8x8xf32>
  %2 = stablehlo.convolution(%1, %v) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x64x8x8xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x8x8xf32>
  %3 = stablehlo.tanh %2 : tensor<1x64x8x8xf32>
  %4 = stablehlo.convolution(%3, %u) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x64x8x8xf32>, tensor<128x64x1x1xf32>) -> tensor<1x128x4x4xf32>
  return %4 : tensor<1x128x4x4xf32>
}

// -----

// Full lanes stay.
func.func public @main(%x: tensor<1x128x4x4xf32> {tpuc.argument = "input:x"}, %w: tensor<128x128x1x1xf32> {tpuc.argument = "weight:w"}, %v: tensor<128x128x1x1xf32> {tpuc.argument = "weight:v"}) -> tensor<1x128x4x4xf32> {
  // CHECK-NOT: stablehlo.reshape
  // CHECK: return
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x128x4x4xf32>, tensor<128x128x1x1xf32>) -> tensor<1x128x4x4xf32>
  %1 = stablehlo.convolution(%0, %v) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x128x4x4xf32>, tensor<128x128x1x1xf32>) -> tensor<1x128x4x4xf32>
  return %1 : tensor<1x128x4x4xf32>
}

// RUN: tpuc opt --passes 'space-to-depth' --target v5e %s | filecheck %s

// The stem of a ResNet: blocks of 2 x 2 pixels are channels.
// TOLERANCE: 1e-3
func.func public @main(%x: tensor<1x3x224x224xf32> {tpuc.argument = "input:x"}, %w: tensor<64x3x7x7xf32> {tpuc.argument = "weight:w"}) -> tensor<1x64x112x112xf32> {
  // CHECK-LABEL: func.func public @main
  // CHECK: stablehlo.pad {{.*}} low = [0, 3, 3, 0], high = [0, 3, 3, 0]
  // CHECK: stablehlo.convolution({{.*}}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]
  // CHECK-SAME: (tensor<1x115x115x12xf32>, tensor<4x4x12x64xf32>) -> tensor<1x112x112x64xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2], pad = [[3, 3], [3, 3]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x224x224xf32>, tensor<64x3x7x7xf32>) -> tensor<1x64x112x112xf32>
  return %0 : tensor<1x64x112x112xf32>
}

// -----

// Many channels, groups and a stride of one stay.
func.func public @main(%x: tensor<1x64x16x16xf32> {tpuc.argument = "input:x"}, %w: tensor<8x64x3x3xf32> {tpuc.argument = "weight:w"}, %y: tensor<1x4x16x16xf32> {tpuc.argument = "input:y"}, %v: tensor<4x1x3x3xf32> {tpuc.argument = "weight:v"}, %u: tensor<8x4x3x3xf32> {tpuc.argument = "weight:u"}) -> (tensor<1x8x7x7xf32>, tensor<1x4x7x7xf32>, tensor<1x8x14x14xf32>) {
  // CHECK-NOT: stablehlo.reshape
  // CHECK: return
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x64x16x16xf32>, tensor<8x64x3x3xf32>) -> tensor<1x8x7x7xf32>
  %1 = stablehlo.convolution(%y, %v) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 4 : i64} : (tensor<1x4x16x16xf32>, tensor<4x1x3x3xf32>) -> tensor<1x4x7x7xf32>
  %2 = stablehlo.convolution(%y, %u) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x16x16xf32>, tensor<8x4x3x3xf32>) -> tensor<1x8x14x14xf32>
  return %0, %1, %2 : tensor<1x8x7x7xf32>, tensor<1x4x7x7xf32>, tensor<1x8x14x14xf32>
}

// The operators of ATen, one row each: what PyTorch's dispatcher, autograd and torch.compile know of them. What an
// operator computes (its results, what it saves, what it holds for a moment, FLOPs and bytes: the five facts) is the
// function that calls it with its row, in ops/. Names: native_functions.yaml; nodes: tools/autograd/derivatives.yaml;
// autocast: aten/src/ATen/autocast_mode.h; all of torch 2.11. Covered by tests/unit/aten_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// The lists of ATen/autocast_mode.h: what autocast does to operands.
enum class AutocastList : std::uint8_t {
  kNone,
  kHalf,           // lower_precision_fp: to the region's 16-bit type
  kFloat32,        // fp32: to float32
  kFloat32Result,  // fp32_set_opt_dtype: operands stay, the result is computed in float32
  kPromote,        // promote: to the widest of them
};

/// What AOTAutograd and inductor make of an operator, forward and backward (train/compile/rules.h).
enum class CompileRule : std::uint8_t {
  kKernel,  // a kernel of its own
  // views, parts of tensors, concatenation
  kView,
  kExpand,
  kPart,
  kSplit,
  kConcatenate,
  kSliceScatter,
  kStridedView,
  // inlined into what reads it
  kPointwise,
  kPassing,  // its gradient is the one that comes
  kConvert,
  kRelu,
  kSilu,
  kGelu,
  kDropout,
  kPad,
  kExtremum,
  kMseLoss,
  kCopy,
  kMove,
  kRepeat,
  kBilinear,
  kBicubic,
  // reductions, and what is decomposed to them
  kReduction,
  kLayerNorm,
  kBatchNorm,
  kSoftmax,
  kLogSoftmax,
  kNllLoss,
  kGroupNorm,
  kAmax,
  kLogsumexp,
  kVar,
  kStd,
  kVectorNorm,
  kWeightNorm,
  // kernels, of which inductor knows more
  kProduct,
  kProductWithBias,
  kConvolution,
  kEmbedding,
  kMaxPool,
  kGather,
  kIndexAdd,
  kIndexCopy,
  kScatter,
  kMax,
  kFloat8Product,
};
inline constexpr std::size_t kCompileRuleCount = static_cast<std::size_t>(CompileRule::kFloat8Product) + 1;

/// An operator as the one that asks for memory and runs kernels: "aten::mul".
struct AtenOperator : Operator {
  Operator node{nullptr};  // of its derivative: "MulBackward0"; no name: it has none, or was not needed yet
  AutocastList autocast = AutocastList::kNone;
  CompileRule compile = CompileRule::kKernel;
  bool is_view = false;  // autograd follows a change in place through it (CopySlices)
};

namespace aten {

inline constexpr AtenOperator kAbs{{"aten::abs"}, {"AbsBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kAdaptiveAvgPool2d{
    {"aten::_adaptive_avg_pool2d"}, {"AdaptiveAvgPool2DBackward0"}, AutocastList::kNone, CompileRule::kReduction};
inline constexpr AtenOperator kAdaptiveAvgPool2dBackward{{"aten::_adaptive_avg_pool2d_backward"}};
inline constexpr AtenOperator kAdaptiveMaxPool2d{{"aten::adaptive_max_pool2d"}, {"AdaptiveMaxPool2DBackward0"}};
inline constexpr AtenOperator kAdaptiveMaxPool2dBackward{{"aten::adaptive_max_pool2d_backward"}};
inline constexpr AtenOperator kAdd{{"aten::add"}, {"AddBackward0"}, AutocastList::kNone, CompileRule::kPassing};
inline constexpr AtenOperator kAddInPlace{{"aten::add_"}};
inline constexpr AtenOperator kAddcmul{
    {"aten::addcmul"}, {"AddcmulBackward0"}, AutocastList::kPromote, CompileRule::kPointwise};
inline constexpr AtenOperator kAddmm{
    {"aten::addmm"}, {"AddmmBackward0"}, AutocastList::kHalf, CompileRule::kProductWithBias};
inline constexpr AtenOperator kAll{{"aten::all"}};
inline constexpr AtenOperator kAmax{{"aten::amax"}, {"AmaxBackward0"}, AutocastList::kNone, CompileRule::kAmax};
inline constexpr AtenOperator kAmpForeachNonFiniteCheckAndUnscale{{"aten::_amp_foreach_non_finite_check_and_unscale_"}};
inline constexpr AtenOperator kAny{{"aten::any"}};
inline constexpr AtenOperator kArange{{"aten::arange"}};
inline constexpr AtenOperator kArgmax{{"aten::argmax"}};
inline constexpr AtenOperator kAsStrided{
    {"aten::as_strided"}, {"AsStridedBackward0"}, AutocastList::kNone, CompileRule::kStridedView, true};
inline constexpr AtenOperator kAsStridedCopy{{"aten::as_strided"}, {"AsStridedBackward1"}};
inline constexpr AtenOperator kAvgPool2d{
    {"aten::avg_pool2d"}, {"AvgPool2DBackward0"}, AutocastList::kNone, CompileRule::kReduction};
inline constexpr AtenOperator kAvgPool2dBackward{{"aten::avg_pool2d_backward"}};
inline constexpr AtenOperator kBitwiseAnd{{"aten::bitwise_and"}};
inline constexpr AtenOperator kBitwiseNot{{"aten::bitwise_not"}};
inline constexpr AtenOperator kBitwiseOr{{"aten::bitwise_or"}};
inline constexpr AtenOperator kBinaryCrossEntropyWithLogits{
    {"aten::binary_cross_entropy_with_logits"}, {"BinaryCrossEntropyWithLogitsBackward0"}, AutocastList::kFloat32};
inline constexpr AtenOperator kBmm{{"aten::bmm"}, {"BmmBackward0"}, AutocastList::kHalf, CompileRule::kProduct};
inline constexpr AtenOperator kBucketize{{"aten::bucketize"}};
inline constexpr AtenOperator kCat{{"aten::cat"}, {"CatBackward0"}, AutocastList::kNone, CompileRule::kConcatenate};
inline constexpr AtenOperator kClamp{{"aten::clamp"}, {"ClampBackward1"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kClone{{"aten::clone"}, {"CloneBackward0"}, AutocastList::kNone, CompileRule::kPassing};
inline constexpr AtenOperator kCol2im{
    {"aten::col2im"}, {"Col2ImBackward0"}, AutocastList::kNone, CompileRule::kIndexCopy};
inline constexpr AtenOperator kConstantPadNd{
    {"aten::constant_pad_nd"}, {"ConstantPadNdBackward0"}, AutocastList::kNone, CompileRule::kPad};
inline constexpr AtenOperator kContiguous{{"aten::contiguous"}};
inline constexpr AtenOperator kConvDepthwise2d{{"aten::_conv_depthwise2d"}};
inline constexpr AtenOperator kConvertBooleanAttnMask{{"aten::convert_boolean_attn_mask"},
                                                      {"aten::convert_boolean_attn_mask"},
                                                      AutocastList::kNone,
                                                      CompileRule::kPointwise};
inline constexpr AtenOperator kConvolution{
    {"aten::convolution"}, {"ConvolutionBackward0"}, AutocastList::kHalf, CompileRule::kConvolution};
inline constexpr AtenOperator kConvolutionBackward{{"aten::convolution_backward"}};
inline constexpr AtenOperator kCopy{{"aten::copy_"}, {"CopyBackwards"}, AutocastList::kNone, CompileRule::kCopy};
inline constexpr AtenOperator kCos{{"aten::cos"}, {"CosBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kCtcLoss{{"aten::_ctc_loss"}, {"CtcLossBackward0"}, AutocastList::kFloat32};
inline constexpr AtenOperator kCtcLossFunction{{"aten::ctc_loss"}};
inline constexpr AtenOperator kCtcLossBackward{{"aten::_ctc_loss_backward"}};
inline constexpr AtenOperator kCudnnAttentionBackward{{"aten::_cudnn_attention_backward"}};
inline constexpr AtenOperator kCudnnAttentionForward{{"aten::_cudnn_attention_forward"}};
inline constexpr AtenOperator kCudnnBatchNorm{
    {"aten::cudnn_batch_norm"}, {"CudnnBatchNormBackward0"}, AutocastList::kNone, CompileRule::kBatchNorm};
inline constexpr AtenOperator kCudnnBatchNormBackward{{"aten::cudnn_batch_norm_backward"}};
inline constexpr AtenOperator kCudnnConvolution{{"aten::cudnn_convolution"}};
inline constexpr AtenOperator kCudnnInitDropoutState{{"aten::_cudnn_init_dropout_state"}};
inline constexpr AtenOperator kCudnnRnn{{"aten::_cudnn_rnn"}, {"CudnnRnnBackward0"}, AutocastList::kHalf};
inline constexpr AtenOperator kCudnnRnnBackward{{"aten::_cudnn_rnn_backward"}};
inline constexpr AtenOperator kCumsum{{"aten::cumsum"}, {"CumsumBackward0"}, AutocastList::kFloat32Result};
inline constexpr AtenOperator kDiv{{"aten::div"}, {"DivBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kDivInPlace{{"aten::div_"}};
inline constexpr AtenOperator kFusedDropout{{"aten::dropout_"}};
inline constexpr AtenOperator kDot{{"aten::dot"}, {"DotBackward0"}};
inline constexpr AtenOperator kEfficientAttentionBackward{{"aten::_efficient_attention_backward"}};
inline constexpr AtenOperator kEfficientAttentionForward{{"aten::_efficient_attention_forward"}};
inline constexpr AtenOperator kEinsum{{"aten::einsum"}, {}, AutocastList::kHalf};
inline constexpr AtenOperator kElu{{"aten::elu"}, {"EluBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kEluBackward{{"aten::elu_backward"}};
inline constexpr AtenOperator kEmbedding{
    {"aten::embedding"}, {"EmbeddingBackward0"}, AutocastList::kNone, CompileRule::kEmbedding};
inline constexpr AtenOperator kEmbeddingDenseBackward{{"aten::embedding_dense_backward"}};
inline constexpr AtenOperator kEmpty{{"aten::empty"}};
inline constexpr AtenOperator kEmptyLike{{"aten::empty_like"}};
inline constexpr AtenOperator kEq{{"aten::eq"}};
inline constexpr AtenOperator kEqual{{"aten::equal"}};
inline constexpr AtenOperator kErf{{"aten::erf"}, {"ErfBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kExp{{"aten::exp"}, {"ExpBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kExpand{
    {"aten::expand"}, {"ExpandBackward0"}, AutocastList::kNone, CompileRule::kExpand, true};
inline constexpr AtenOperator kExpm1{
    {"aten::expm1"}, {"Expm1Backward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kFill{{"aten::fill_"}};
inline constexpr AtenOperator kFlashAttentionBackward{{"aten::_flash_attention_backward"}};
inline constexpr AtenOperator kFlashAttentionForward{{"aten::_flash_attention_forward"}};
inline constexpr AtenOperator kFlip{{"aten::flip"}, {"FlipBackward0"}, AutocastList::kNone, CompileRule::kMove};
inline constexpr AtenOperator kFloorDivide{{"aten::floor_divide"}};
inline constexpr AtenOperator kFmod{{"aten::fmod"}};
inline constexpr AtenOperator kForeachAbs{{"aten::_foreach_abs"}};
inline constexpr AtenOperator kForeachAdd{{"aten::_foreach_add"}};
inline constexpr AtenOperator kForeachMul{{"aten::_foreach_mul"}};
inline constexpr AtenOperator kForeachMulInPlace{{"aten::_foreach_mul_"}};
inline constexpr AtenOperator kForeachNorm{{"aten::_foreach_norm"}};
inline constexpr AtenOperator kForeachSqrt{{"aten::_foreach_sqrt"}};
inline constexpr AtenOperator kFull{{"aten::full"}};
inline constexpr AtenOperator kFullLike{{"aten::full_like"}};
inline constexpr AtenOperator kFusedRmsNorm{
    {"aten::_fused_rms_norm"}, {"FusedRmsNormBackward0"}, AutocastList::kNone, CompileRule::kLayerNorm};
inline constexpr AtenOperator kFusedRmsNormBackward{{"aten::_fused_rms_norm_backward"}};
inline constexpr AtenOperator kGather{{"aten::gather"}, {"GatherBackward0"}, AutocastList::kNone, CompileRule::kGather};
inline constexpr AtenOperator kGe{{"aten::ge"}};
inline constexpr AtenOperator kGelu{{"aten::gelu"}, {"GeluBackward0"}, AutocastList::kNone, CompileRule::kGelu};
inline constexpr AtenOperator kGeluBackward{{"aten::gelu_backward"}};
inline constexpr AtenOperator kGroupedMm{{"aten::_grouped_mm"}, {"GroupedMmBackward0"}};
inline constexpr AtenOperator kGt{{"aten::gt"}};
inline constexpr AtenOperator kHardsigmoid{
    {"aten::hardsigmoid"}, {"HardsigmoidBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kHardsigmoidBackward{{"aten::hardsigmoid_backward"}};
inline constexpr AtenOperator kHardswish{
    {"aten::hardswish"}, {"HardswishBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kHardswishInPlace{{"aten::hardswish_"}};
inline constexpr AtenOperator kHardswishBackward{{"aten::hardswish_backward"}};
inline constexpr AtenOperator kHardtanh{
    {"aten::hardtanh"}, {"HardtanhBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kHardtanhInPlace{{"aten::hardtanh_"}};
inline constexpr AtenOperator kHardtanhBackward{{"aten::hardtanh_backward"}};
inline constexpr AtenOperator kHistc{{"aten::histc"}};
inline constexpr AtenOperator kIm2col{{"aten::im2col"}, {"Im2ColBackward0"}, AutocastList::kNone, CompileRule::kGather};
inline constexpr AtenOperator kIndex{{"aten::index"}, {"IndexBackward0"}, AutocastList::kNone, CompileRule::kGather};
inline constexpr AtenOperator kIndexAdd{
    {"aten::index_add"}, {"IndexAddBackward0"}, AutocastList::kNone, CompileRule::kIndexAdd};
inline constexpr AtenOperator kIndexAddInPlace{{"aten::index_add_"}};
inline constexpr AtenOperator kIndexCopy{
    {"aten::index_copy"}, {"IndexCopyBackward0"}, AutocastList::kNone, CompileRule::kIndexCopy};
inline constexpr AtenOperator kIndexPut{{"aten::index_put"}, {}, AutocastList::kPromote};
inline constexpr AtenOperator kIndexPutInPlace{{"aten::index_put_"}, {"IndexPutBackward0"}};
inline constexpr AtenOperator kIndexPutImpl{{"aten::_index_put_impl_"}};
inline constexpr AtenOperator kIndexSelect{
    {"aten::index_select"}, {"IndexSelectBackward0"}, AutocastList::kNone, CompileRule::kGather};
inline constexpr AtenOperator kIsfinite{{"aten::isfinite"}};
inline constexpr AtenOperator kIsin{{"aten::isin"}};
inline constexpr AtenOperator kIsinf{{"aten::isinf"}};
inline constexpr AtenOperator kIsnan{{"aten::isnan"}};
inline constexpr AtenOperator kIsneginf{{"aten::isneginf"}};
inline constexpr AtenOperator kItem{{"aten::item"}};
inline constexpr AtenOperator kLe{{"aten::le"}};
inline constexpr AtenOperator kLeakyRelu{
    {"aten::leaky_relu"}, {"LeakyReluBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kLeakyReluBackward{{"aten::leaky_relu_backward"}};
inline constexpr AtenOperator kLerp{{"aten::lerp"}, {"LerpBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kLinalgSolveTriangular{{"aten::linalg_solve_triangular"},
                                                     {"LinalgSolveTriangularBackward0"}};
inline constexpr AtenOperator kLinalgVectorNorm{{"aten::linalg_vector_norm"},
                                                {"LinalgVectorNormBackward0"},
                                                AutocastList::kFloat32Result,
                                                CompileRule::kVectorNorm};
inline constexpr AtenOperator kLinear{{"aten::linear"}, {}, AutocastList::kHalf};
inline constexpr AtenOperator kLog{{"aten::log"}, {"LogBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kLog1p{
    {"aten::log1p"}, {"Log1PBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kLogSigmoid{{"aten::log_sigmoid"}};
inline constexpr AtenOperator kLogSigmoidBackward{{"aten::log_sigmoid_backward"}};
inline constexpr AtenOperator kLogSigmoidForward{
    {"aten::log_sigmoid_forward"}, {"LogSigmoidBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kLogSoftmax{
    {"aten::_log_softmax"}, {"LogSoftmaxBackward0"}, AutocastList::kFloat32Result, CompileRule::kLogSoftmax};
inline constexpr AtenOperator kLogSoftmaxBackwardData{{"aten::_log_softmax_backward_data"}};
inline constexpr AtenOperator kLogical{{"aten::logical"}};
inline constexpr AtenOperator kLogsumexp{
    {"aten::logsumexp"}, {"LogsumexpBackward0"}, AutocastList::kFloat32, CompileRule::kLogsumexp};
inline constexpr AtenOperator kLt{{"aten::lt"}};
inline constexpr AtenOperator kMaskedFill{
    {"aten::masked_fill"}, {"MaskedFillBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kMaskedFillInPlace{{"aten::masked_fill_"}};
inline constexpr AtenOperator kMaskedScatter{{"aten::masked_scatter"}, {"MaskedScatterBackward0"}};
inline constexpr AtenOperator kMaskedSelect{{"aten::masked_select"}};
inline constexpr AtenOperator kMatmul{{"aten::matmul"}, {}, AutocastList::kHalf};
inline constexpr AtenOperator kMax{{"aten::max"}, {"MaxBackward0"}, AutocastList::kNone, CompileRule::kMax};
inline constexpr AtenOperator kMaxPool2dWithIndices{
    {"aten::max_pool2d_with_indices"}, {"MaxPool2DWithIndicesBackward0"}, AutocastList::kNone, CompileRule::kMaxPool};
inline constexpr AtenOperator kMaxPool2dWithIndicesBackward{{"aten::max_pool2d_with_indices_backward"}};
inline constexpr AtenOperator kMaximum{
    {"aten::maximum"}, {"MaximumBackward0"}, AutocastList::kNone, CompileRule::kExtremum};
inline constexpr AtenOperator kMean{{"aten::mean"}, {"MeanBackward1"}, AutocastList::kNone, CompileRule::kReduction};
inline constexpr AtenOperator kMeanOfAll{{"aten::mean"}, {"MeanBackward0"}};
inline constexpr AtenOperator kMin{{"aten::min"}};
inline constexpr AtenOperator kMinimum{
    {"aten::minimum"}, {"MinimumBackward0"}, AutocastList::kNone, CompileRule::kExtremum};
inline constexpr AtenOperator kMish{{"aten::mish"}, {"MishBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kMishBackward{{"aten::mish_backward"}};
inline constexpr AtenOperator kMm{{"aten::mm"}, {"MmBackward0"}, AutocastList::kHalf, CompileRule::kProduct};
inline constexpr AtenOperator kMseLoss{
    {"aten::mse_loss"}, {"MseLossBackward0"}, AutocastList::kFloat32, CompileRule::kMseLoss};
inline constexpr AtenOperator kMseLossBackward{{"aten::mse_loss_backward"}};
inline constexpr AtenOperator kMul{{"aten::mul"}, {"MulBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kNanToNum{{"aten::nan_to_num"}};
inline constexpr AtenOperator kNativeBatchNorm{
    {"aten::native_batch_norm"}, {"NativeBatchNormBackward0"}, AutocastList::kNone, CompileRule::kBatchNorm};
inline constexpr AtenOperator kNativeBatchNormBackward{{"aten::native_batch_norm_backward"}};
inline constexpr AtenOperator kNativeDropout{
    {"aten::native_dropout"}, {"NativeDropoutBackward0"}, AutocastList::kNone, CompileRule::kDropout};
inline constexpr AtenOperator kNativeDropoutBackward{{"aten::native_dropout_backward"}};
inline constexpr AtenOperator kNativeGroupNorm{
    {"aten::native_group_norm"}, {"NativeGroupNormBackward0"}, AutocastList::kFloat32, CompileRule::kGroupNorm};
inline constexpr AtenOperator kNativeGroupNormBackward{{"aten::native_group_norm_backward"}};
inline constexpr AtenOperator kNativeLayerNorm{
    {"aten::native_layer_norm"}, {"NativeLayerNormBackward0"}, AutocastList::kFloat32, CompileRule::kLayerNorm};
inline constexpr AtenOperator kNativeLayerNormBackward{{"aten::native_layer_norm_backward"}};
inline constexpr AtenOperator kNe{{"aten::ne"}};
inline constexpr AtenOperator kNeg{{"aten::neg"}, {"NegBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kNewEmpty{{"aten::new_empty"}};
inline constexpr AtenOperator kNewOnes{{"aten::new_ones"}};
inline constexpr AtenOperator kNewZeros{{"aten::new_zeros"}};
inline constexpr AtenOperator kNllLossBackward{{"aten::nll_loss_backward"}};
inline constexpr AtenOperator kNllLossForward{
    {"aten::nll_loss_forward"}, {"NllLossBackward0"}, AutocastList::kFloat32, CompileRule::kNllLoss};
inline constexpr AtenOperator kNonzero{{"aten::nonzero"}};
inline constexpr AtenOperator kNorm{{"aten::norm"}};
inline constexpr AtenOperator kOneHot{{"aten::one_hot"}};
inline constexpr AtenOperator kOnes{{"aten::ones"}};
inline constexpr AtenOperator kOnesLike{{"aten::ones_like"}};
inline constexpr AtenOperator kPermute{
    {"aten::permute"}, {"PermuteBackward0"}, AutocastList::kNone, CompileRule::kView, true};
inline constexpr AtenOperator kPolar{{"aten::polar"}};
inline constexpr AtenOperator kPow{{"aten::pow"}, {"PowBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kPowTensor{
    {"aten::pow"}, {"PowBackward1"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kProd{{"aten::prod"}, {}, AutocastList::kFloat32Result};
inline constexpr AtenOperator kRand{{"aten::rand"}};
inline constexpr AtenOperator kRandint{{"aten::randint"}};
inline constexpr AtenOperator kReciprocal{
    {"aten::reciprocal"}, {"ReciprocalBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kRelu{{"aten::relu"}, {"ReluBackward0"}, AutocastList::kNone, CompileRule::kRelu};
inline constexpr AtenOperator kReluInPlace{{"aten::relu_"}};
inline constexpr AtenOperator kRemainder{{"aten::remainder"}};
inline constexpr AtenOperator kRepeat{{"aten::repeat"}, {"RepeatBackward0"}, AutocastList::kNone, CompileRule::kRepeat};
inline constexpr AtenOperator kRepeatInterleave{{"aten::repeat_interleave"}, {"RepeatInterleaveBackward0"}};
inline constexpr AtenOperator kResize{{"aten::resize_"}};
inline constexpr AtenOperator kRoll{{"aten::roll"}, {"RollBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kRound{{"aten::round"}};
inline constexpr AtenOperator kRsqrt{
    {"aten::rsqrt"}, {"RsqrtBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kRsub{{"aten::rsub"}, {"RsubBackward1"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kSafeSoftmax{
    {"aten::_safe_softmax"}, {"SafeSoftmaxBackward0"}, AutocastList::kFloat32Result, CompileRule::kSoftmax};
inline constexpr AtenOperator kScalarTensor{{"aten::scalar_tensor"}};
inline constexpr AtenOperator kScaledDotProductAttention{
    {"aten::scaled_dot_product_attention"}, {}, AutocastList::kHalf};
inline constexpr AtenOperator kScaledDotProductCudnnAttention{{"aten::_scaled_dot_product_cudnn_attention"},
                                                              {"ScaledDotProductCudnnAttentionBackward0"}};
inline constexpr AtenOperator kScaledDotProductEfficientAttention{{"aten::_scaled_dot_product_efficient_attention"},
                                                                  {"ScaledDotProductEfficientAttentionBackward0"}};
inline constexpr AtenOperator kScaledDotProductFlashAttention{{"aten::_scaled_dot_product_flash_attention"},
                                                              {"ScaledDotProductFlashAttentionBackward0"}};
inline constexpr AtenOperator kScaledMm{{"aten::_scaled_mm"}};
inline constexpr AtenOperator kScatter{
    {"aten::scatter"}, {"ScatterBackward0"}, AutocastList::kNone, CompileRule::kScatter};
inline constexpr AtenOperator kScatterAdd{
    {"aten::scatter_add"}, {"ScatterAddBackward0"}, AutocastList::kPromote, CompileRule::kIndexAdd};
inline constexpr AtenOperator kSelect{
    {"aten::select"}, {"SelectBackward0"}, AutocastList::kNone, CompileRule::kPart, true};
inline constexpr AtenOperator kSelectBackward{{"aten::select_backward"}};
inline constexpr AtenOperator kSgn{{"aten::sgn"}};
inline constexpr AtenOperator kSigmoid{
    {"aten::sigmoid"}, {"SigmoidBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kSigmoidBackward{{"aten::sigmoid_backward"}};
inline constexpr AtenOperator kSilu{{"aten::silu"}, {"SiluBackward0"}, AutocastList::kNone, CompileRule::kSilu};
inline constexpr AtenOperator kSiluInPlace{{"aten::silu_"}};
inline constexpr AtenOperator kSiluBackward{{"aten::silu_backward"}};
inline constexpr AtenOperator kSin{{"aten::sin"}, {"SinBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kSlice{
    {"aten::slice"}, {"SliceBackward0"}, AutocastList::kNone, CompileRule::kPart, true};
inline constexpr AtenOperator kSliceBackward{{"aten::slice_backward"}};
inline constexpr AtenOperator kSliceScatter{{"aten::slice_scatter"}};
inline constexpr AtenOperator kSoftmax{
    {"aten::_softmax"}, {"SoftmaxBackward0"}, AutocastList::kFloat32Result, CompileRule::kSoftmax};
inline constexpr AtenOperator kSoftmaxBackwardData{{"aten::_softmax_backward_data"}};
inline constexpr AtenOperator kSoftplus{
    {"aten::softplus"}, {"SoftplusBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kSoftplusBackward{{"aten::softplus_backward"}};
inline constexpr AtenOperator kSort{{"aten::sort"}};
inline constexpr AtenOperator kSplit{{"aten::split"}, {"SplitBackward0"}, AutocastList::kNone, CompileRule::kSplit};
inline constexpr AtenOperator kSplitWithSizes{
    {"aten::split_with_sizes"}, {"SplitWithSizesBackward0"}, AutocastList::kNone, CompileRule::kSplit};
inline constexpr AtenOperator kSqrt{{"aten::sqrt"}, {"SqrtBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kSqueeze{
    {"aten::squeeze"}, {"SqueezeBackward1"}, AutocastList::kNone, CompileRule::kView, true};
inline constexpr AtenOperator kStack{{"aten::stack"}};
inline constexpr AtenOperator kStd{{"aten::std"}, {"StdBackward0"}, AutocastList::kNone, CompileRule::kStd};
inline constexpr AtenOperator kSub{{"aten::sub"}, {"SubBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kSum{
    {"aten::sum"}, {"SumBackward1"}, AutocastList::kFloat32Result, CompileRule::kReduction};
inline constexpr AtenOperator kT{{"aten::t"}, {"TBackward0"}, AutocastList::kNone, CompileRule::kView, true};
inline constexpr AtenOperator kTanh{{"aten::tanh"}, {"TanhBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kTanhBackward{{"aten::tanh_backward"}};
inline constexpr AtenOperator kTensor{{"aten::tensor"}};
inline constexpr AtenOperator kThresholdBackward{{"aten::threshold_backward"}};
inline constexpr AtenOperator kTo{{"aten::to"}};
inline constexpr AtenOperator kToCopy{
    {"aten::_to_copy"}, {"ToCopyBackward0"}, AutocastList::kNone, CompileRule::kConvert};
inline constexpr AtenOperator kTopk{{"aten::topk"}, {"TopkBackward0"}};
inline constexpr AtenOperator kTranspose{
    {"aten::transpose"}, {"TransposeBackward0"}, AutocastList::kNone, CompileRule::kView, true};
inline constexpr AtenOperator kTril{{"aten::tril"}};
inline constexpr AtenOperator kUnbind{{"aten::unbind"}, {"UnbindBackward0"}, AutocastList::kNone, CompileRule::kSplit};
inline constexpr AtenOperator kUnfold{
    {"aten::unfold"}, {"UnfoldBackward0"}, AutocastList::kNone, CompileRule::kKernel, true};
inline constexpr AtenOperator kUnfoldBackward{{"aten::unfold_backward"}};
inline constexpr AtenOperator kUnique2{{"aten::_unique2"}};
inline constexpr AtenOperator kUniqueConsecutive{{"aten::unique_consecutive"}};
inline constexpr AtenOperator kUnsafeView{
    {"aten::_unsafe_view"}, {"UnsafeViewBackward0"}, AutocastList::kNone, CompileRule::kView};
inline constexpr AtenOperator kUnsqueeze{
    {"aten::unsqueeze"}, {"UnsqueezeBackward0"}, AutocastList::kNone, CompileRule::kView, true};
inline constexpr AtenOperator kUpsampleBicubic2d{
    {"aten::upsample_bicubic2d"}, {"UpsampleBicubic2DBackward0"}, AutocastList::kFloat32, CompileRule::kBicubic};
inline constexpr AtenOperator kUpsampleBicubic2dBackward{{"aten::upsample_bicubic2d_backward"}};
inline constexpr AtenOperator kUpsampleBilinear2d{
    {"aten::upsample_bilinear2d"}, {"UpsampleBilinear2DBackward0"}, AutocastList::kFloat32, CompileRule::kBilinear};
inline constexpr AtenOperator kUpsampleBilinear2dBackward{{"aten::upsample_bilinear2d_backward"}};
inline constexpr AtenOperator kUpsampleNearest2d{
    {"aten::upsample_nearest2d"}, {"UpsampleNearest2DBackward0"}, AutocastList::kFloat32, CompileRule::kMove};
inline constexpr AtenOperator kUpsampleNearest2dBackward{{"aten::upsample_nearest2d_backward"}};
inline constexpr AtenOperator kVar{{"aten::var"}, {"VarBackward0"}, AutocastList::kNone, CompileRule::kVar};
inline constexpr AtenOperator kVarMean{{"aten::var_mean"}};
inline constexpr AtenOperator kView{{"aten::view"}, {"ViewBackward0"}, AutocastList::kNone, CompileRule::kView, true};
inline constexpr AtenOperator kViewAsComplex{
    {"aten::view_as_complex"}, {"ViewAsComplexBackward0"}, AutocastList::kNone, CompileRule::kView};
inline constexpr AtenOperator kViewAsReal{
    {"aten::view_as_real"}, {"ViewAsRealBackward0"}, AutocastList::kNone, CompileRule::kView};
inline constexpr AtenOperator kWeightNormInterface{
    {"aten::_weight_norm_interface"}, {"WeightNormInterfaceBackward0"}, AutocastList::kNone, CompileRule::kWeightNorm};
inline constexpr AtenOperator kWeightNormInterfaceBackward{{"aten::_weight_norm_interface_backward"}};
inline constexpr AtenOperator kWhere{{"aten::where"}, {"WhereBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kZero{{"aten::zero_"}};
inline constexpr AtenOperator kZeros{{"aten::zeros"}};
inline constexpr AtenOperator kZerosLike{{"aten::zeros_like"}};
}  // namespace aten

}  // namespace memcalc

// The operators of ATen that only recorded programs call (ops/table_*.cc), one row each: the rest of the table that
// aten.h begins, apart so that families are not compiled anew when it grows. Names: native_functions.yaml; nodes:
// tools/autograd/derivatives.yaml; autocast: aten/src/ATen/autocast_mode.h; all of torch 2.11. Covered by
// tests/unit/table_rows_test.cc.
#pragma once

#include "memcalc/symbolic/aten.h"

namespace memcalc::aten {

inline constexpr AtenOperator kAcos{{"aten::acos"}, {"AcosBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kAcosh{{"aten::acosh"}, {"AcoshBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kAddbmm{{"aten::addbmm"}, {"AddbmmBackward0"}, AutocastList::kHalf};
inline constexpr AtenOperator kAddcdiv{
    {"aten::addcdiv"}, {"AddcdivBackward0"}, AutocastList::kPromote, CompileRule::kPointwise};
inline constexpr AtenOperator kAddmv{{"aten::addmv"}, {"AddmvBackward0"}, AutocastList::kHalf};
inline constexpr AtenOperator kAddr{{"aten::addr"}, {"AddrBackward0"}, AutocastList::kHalf};
inline constexpr AtenOperator kAmin{{"aten::amin"}};
inline constexpr AtenOperator kAsin{{"aten::asin"}, {"AsinBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kAsinh{{"aten::asinh"}, {"AsinhBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kAtan{{"aten::atan"}, {"AtanBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kAtan2{
    {"aten::atan2"}, {"Atan2Backward0"}, AutocastList::kPromote, CompileRule::kPointwise};
inline constexpr AtenOperator kAtanh{{"aten::atanh"}, {"AtanhBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kBaddbmm{{"aten::baddbmm"}, {"BaddbmmBackward0"}, AutocastList::kHalf};
inline constexpr AtenOperator kBinaryCrossEntropy{{"aten::binary_cross_entropy"}, {"BinaryCrossEntropyBackward0"}};
inline constexpr AtenOperator kBinaryCrossEntropyBackward{{"aten::binary_cross_entropy_backward"}};
inline constexpr AtenOperator kCdist{{"aten::_cdist_forward"}, {"CdistBackward0"}, AutocastList::kFloat32};
inline constexpr AtenOperator kCdistBackward{{"aten::_cdist_backward"}};
inline constexpr AtenOperator kEuclideanDist{{"aten::_euclidean_dist"}, {"EuclideanDistBackward0"}};
inline constexpr AtenOperator kCelu{{"aten::celu"}, {"CeluBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kClampTensor{
    {"aten::clamp"}, {"ClampBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kCholesky{{"aten::linalg_cholesky_ex"}, {"LinalgCholeskyExBackward0"}};
inline constexpr AtenOperator kComplex{{"aten::complex"}, {"ComplexBackward0"}};
inline constexpr AtenOperator kCopysign{
    {"aten::copysign"}, {"CopysignBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kCosh{{"aten::cosh"}, {"CoshBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kCosineSimilarity{{"aten::cosine_similarity"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kCrossProduct{{"aten::linalg_cross"}, {"LinalgCrossBackward0"}, AutocastList::kPromote};
inline constexpr AtenOperator kCummax{{"aten::cummax"}, {"CummaxBackward0"}};
inline constexpr AtenOperator kCumprod{{"aten::cumprod"}, {"CumprodBackward0"}, AutocastList::kFloat32Result};
inline constexpr AtenOperator kDeterminant{{"aten::_linalg_det"}, {"LinalgDetBackward0"}};
inline constexpr AtenOperator kDiag{{"aten::diagonal_copy"}, {"DiagonalCopyBackward0"}};
inline constexpr AtenOperator kDiagEmbed{{"aten::diag_embed"}, {"DiagEmbedBackward0"}};
inline constexpr AtenOperator kDiagonal{
    {"aten::diagonal"}, {"DiagonalBackward0"}, AutocastList::kNone, CompileRule::kKernel, true};
inline constexpr AtenOperator kDiagonalBackward{{"aten::diagonal_backward"}};
inline constexpr AtenOperator kDigamma{{"aten::digamma"}};
inline constexpr AtenOperator kEmbeddingBag{{"aten::_embedding_bag"}, {"EmbeddingBagBackward0"}};
inline constexpr AtenOperator kEmbeddingBagBackward{{"aten::_embedding_bag_dense_backward"}};
inline constexpr AtenOperator kEigh{{"aten::_linalg_eigh"}, {"LinalgEighBackward0"}};
inline constexpr AtenOperator kErfc{{"aten::erfc"}, {"ErfcBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kErfinv{
    {"aten::erfinv"}, {"ErfinvBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kExp2{{"aten::exp2"}, {"Exp2Backward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kEye{{"aten::eye"}};
inline constexpr AtenOperator kFactoriseLu{{"aten::linalg_lu_factor_ex"}, {"LinalgLuFactorExBackward0"}};
inline constexpr AtenOperator kFeatureDropout{{"aten::feature_dropout"}};
inline constexpr AtenOperator kFftC2c{{"aten::_fft_c2c"}, {"FftC2CBackward0"}};
inline constexpr AtenOperator kFftC2r{{"aten::_fft_c2r"}, {"FftC2RBackward0"}};
inline constexpr AtenOperator kFftR2c{{"aten::_fft_r2c"}, {"FftR2CBackward0"}};
inline constexpr AtenOperator kFillScalar{{"aten::fill_"}, {"FillBackward0"}};
inline constexpr AtenOperator kFmodOf{{"aten::fmod"}, {"FmodBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kFusedGruCell{
    {"aten::_thnn_fused_gru_cell"}, {"ThnnFusedGruCellBackward0"}, AutocastList::kHalf};
inline constexpr AtenOperator kFusedGruCellBackward{{"aten::_thnn_fused_gru_cell_backward"}};
inline constexpr AtenOperator kFusedLstmCell{
    {"aten::_thnn_fused_lstm_cell"}, {"ThnnFusedLstmCellBackward0"}, AutocastList::kHalf};
inline constexpr AtenOperator kFusedLstmCellBackward{{"aten::_thnn_fused_lstm_cell_backward"}};
inline constexpr AtenOperator kGlu{{"aten::glu"}, {"GluBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kGluBackward{{"aten::glu_backward"}};
inline constexpr AtenOperator kGridSampler2d{
    {"aten::grid_sampler_2d"}, {"GridSampler2DBackward0"}, AutocastList::kPromote};
inline constexpr AtenOperator kGridSampler2dBackward{{"aten::grid_sampler_2d_backward"}};
inline constexpr AtenOperator kHardshrink{
    {"aten::hardshrink"}, {"HardshrinkBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kHardshrinkBackward{{"aten::hardshrink_backward"}};
inline constexpr AtenOperator kHuberLoss{{"aten::huber_loss"}, {"HuberLossBackward0"}, AutocastList::kFloat32};
inline constexpr AtenOperator kHuberLossBackward{{"aten::huber_loss_backward"}};
inline constexpr AtenOperator kHypot{{"aten::hypot"}, {"HypotBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kIndexCopyOf{{"aten::index_copy"}, {"IndexCopyBackward0"}};
inline constexpr AtenOperator kIndexFill{{"aten::index_fill"}, {"IndexFillBackward0"}};
inline constexpr AtenOperator kIndexPutOf{{"aten::index_put"}, {"IndexPutBackward0"}, AutocastList::kPromote};
inline constexpr AtenOperator kInverse{{"aten::linalg_inv_ex"}, {"LinalgInvExBackward0"}};
inline constexpr AtenOperator kKlDiv{{"aten::kl_div"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kKthvalue{{"aten::kthvalue"}, {"KthvalueBackward0"}};
inline constexpr AtenOperator kMaxUnpool2d{{"aten::max_unpool2d"}, {"MaxUnpool2DBackward0"}};
inline constexpr AtenOperator kMarginRankingLoss{{"aten::margin_ranking_loss"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kSlogdet{{"aten::_linalg_slogdet"}, {"LinalgSlogdetBackward0"}};
inline constexpr AtenOperator kSolve{{"aten::_linalg_solve_ex"}, {"LinalgSolveExBackward0"}};
inline constexpr AtenOperator kSvd{{"aten::_linalg_svd"}, {"LinalgSvdBackward0"}};
inline constexpr AtenOperator kTripletMarginLoss{{"aten::triplet_margin_loss"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kHingeEmbeddingLoss{{"aten::hinge_embedding_loss"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kCosineEmbeddingLoss{{"aten::cosine_embedding_loss"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kPdist{{"aten::pdist"}, {"PdistBackward0"}, AutocastList::kFloat32};
inline constexpr AtenOperator kPoissonNllLoss{{"aten::poisson_nll_loss"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kProdOf{{"aten::prod"}, {"ProdBackward1"}, AutocastList::kFloat32Result};
inline constexpr AtenOperator kL1Loss{{"aten::l1_loss"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kLerpTensor{
    {"aten::lerp"}, {"LerpBackward1"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kLgamma{
    {"aten::lgamma"}, {"LgammaBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kLog10{
    {"aten::log10"}, {"Log10Backward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kLog2{{"aten::log2"}, {"Log2Backward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kLogaddexp{
    {"aten::logaddexp"}, {"LogaddexpBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kLogcumsumexp{{"aten::logcumsumexp"}, {"LogcumsumexpBackward0"}};
inline constexpr AtenOperator kLogit{{"aten::logit"}, {"LogitBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kLogitBackward{{"aten::logit_backward"}};
/// A custom operator of transformers (integrations/moe.py, 5.17).
inline constexpr AtenOperator kGroupedMmFallback{
    {"transformers::grouped_mm_fallback"}, {"GeneratedBackwardFor_transformers_grouped_mm_fallback_defaultBackward"}};
inline constexpr AtenOperator kMaxOfAll{{"aten::max"}, {"MaxBackward1"}};
inline constexpr AtenOperator kMedian{{"aten::median"}, {"MedianBackward1"}};
inline constexpr AtenOperator kMv{{"aten::mv"}, {"MvBackward0"}, AutocastList::kHalf};
inline constexpr AtenOperator kNanToNumOf{
    {"aten::nan_to_num"}, {"NanToNumBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kNll{{"aten::nll_loss"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kNllLoss2dForward{
    {"aten::nll_loss2d_forward"}, {"NllLoss2DBackward0"}, AutocastList::kFloat32};
inline constexpr AtenOperator kNllLossNone{{"aten::nll_loss_forward"}, {"NllLossBackward0"}, AutocastList::kFloat32};
/// reduction="sum", which torch.compile derives in another way: families with the Trainer's count of labels call it,
/// too.
inline constexpr AtenOperator kNllLossSum{
    {"aten::nll_loss_forward"}, {"NllLossBackward0"}, AutocastList::kFloat32, CompileRule::kNllLoss};
/// torchvision's, which autocast runs in float32 (csrc/ops/autocast).
inline constexpr AtenOperator kNms{{"torchvision::nms"}, {}, AutocastList::kFloat32};
inline constexpr AtenOperator kRoiAlign{{"torchvision::roi_align"}, {"ROIAlignFunction"}, AutocastList::kFloat32};
inline constexpr AtenOperator kDeformConv2d{
    {"torchvision::deform_conv2d"}, {"DeformConv2dFunction"}, AutocastList::kFloat32};
inline constexpr AtenOperator kDeformConv2dBackward{{"torchvision::_deform_conv2d_backward"}};
inline constexpr AtenOperator kRandperm{{"aten::randperm"}};
inline constexpr AtenOperator kPadMode{{"aten::reflection_pad"}, {"ReflectionPad2DBackward0"}};
inline constexpr AtenOperator kPadModeBackward{{"aten::reflection_pad_backward"}};
inline constexpr AtenOperator kPowScalar{
    {"aten::pow"}, {"PowBackward2"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kPreluKernel{
    {"aten::_prelu_kernel"}, {"PreluKernelBackward0"}, AutocastList::kHalf, CompileRule::kPointwise};
inline constexpr AtenOperator kPreluKernelBackward{{"aten::_prelu_kernel_backward"}};
inline constexpr AtenOperator kRemainderOf{
    {"aten::remainder"}, {"RemainderBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kRoundOf{
    {"aten::round"}, {"RoundBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kRreluWithNoise{
    {"aten::rrelu_with_noise"}, {"RreluWithNoiseBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kRreluWithNoiseBackward{{"aten::rrelu_with_noise_backward"}};
inline constexpr AtenOperator kQr{{"aten::linalg_qr"}, {"LinalgQrBackward0"}};
inline constexpr AtenOperator kScatterReduce{{"aten::scatter_reduce"}, {"ScatterReduceBackward0"}};
inline constexpr AtenOperator kSelectScatter{{"aten::select_scatter"}, {"SelectScatterBackward0"}};
inline constexpr AtenOperator kSinc{{"aten::sinc"}, {"SincBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kSinh{{"aten::sinh"}, {"SinhBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kSliceScatterOf{{"aten::slice_scatter"}, {"SliceScatterBackward0"}};
inline constexpr AtenOperator kSmoothL1Loss{
    {"aten::smooth_l1_loss"}, {"SmoothL1LossBackward0"}, AutocastList::kFloat32};
inline constexpr AtenOperator kSmoothL1LossBackward{{"aten::smooth_l1_loss_backward"}};
inline constexpr AtenOperator kSoftMarginLoss{
    {"aten::soft_margin_loss"}, {"SoftMarginLossBackward0"}, AutocastList::kFloat32};
inline constexpr AtenOperator kSoftshrink{
    {"aten::softshrink"}, {"SoftshrinkBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kSoftshrinkBackward{{"aten::softshrink_backward"}};
inline constexpr AtenOperator kSortOf{{"aten::sort"}, {"SortBackward0"}};
inline constexpr AtenOperator kStdMean{{"aten::std_mean"}, {"StdMeanBackward0"}};
inline constexpr AtenOperator kTan{{"aten::tan"}, {"TanBackward0"}, AutocastList::kFloat32, CompileRule::kPointwise};
inline constexpr AtenOperator kThreshold{
    {"aten::threshold"}, {"ThresholdBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kTrace{{"aten::trace"}, {"TraceBackward0"}};
inline constexpr AtenOperator kTrilOf{{"aten::tril"}, {"TrilBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kTriuOf{{"aten::triu"}, {"TriuBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kTrunc{{"aten::trunc"}, {"TruncBackward0"}, AutocastList::kNone, CompileRule::kPointwise};
inline constexpr AtenOperator kUnfoldBackwardOf{{"aten::unfold_backward"}, {"UnfoldBackwardBackward0"}};
inline constexpr AtenOperator kVarMeanOf{{"aten::var_mean"}, {"VarMeanBackward0"}};
inline constexpr AtenOperator kXlogy{{"aten::xlogy"}, {"XlogyBackward0"}, AutocastList::kNone, CompileRule::kPointwise};

}  // namespace memcalc::aten

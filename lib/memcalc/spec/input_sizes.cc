#include "memcalc/spec/input_sizes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/program.h"

namespace memcalc {
namespace {

std::int64_t resolve_batch(const ModelSpec& model, const RunOptions& options, std::vector<std::string>& assumptions) {
  if (options.batch_size) return *options.batch_size;
  if (const auto* recorded = model.architecture.get_if<ProgramSpec>()) {
    for (const ProgramSymbol& symbol : recorded->program->symbols) {  // of a user's own, or of one that takes no other
      if (symbol.name != "batch" || (model.model_type != kProgramType && symbol.fixed.empty())) continue;
      assumptions.push_back(fmt::format("batch size {}: as the program was recorded (--bs)", symbol.recorded));
      return symbol.recorded;
    }
  }
  // kto_trainer.py refuses less: one sample has no other whose answer it could take.
  const bool takes_others = options.loop == Loop::kTrlKto && options.kto_loss.value_or(KtoLoss::kKto) == KtoLoss::kKto;
  const std::int64_t least = takes_others ? 2 : 1;
  assumptions.push_back(fmt::format("batch size {}: none was given (--bs)", least));
  return least;
}

std::int64_t resolve_sequence(const ModelSpec& model, const RunOptions& options,
                              std::vector<std::string>& assumptions) {
  const std::optional<std::int64_t> context = trained_context(model);
  if (options.sequence_length) {
    if (context && *options.sequence_length > *context && !position_limit(model)) {
      assumptions.push_back(
          fmt::format("sequence length {} is beyond the {} tokens that the model was trained with; no "
                      "table of positions forbids it",
                      *options.sequence_length, *context));
    }
    return *options.sequence_length;
  }
  if (const std::optional<std::int64_t> most = model.architecture.dimensions().default_length;
      most && context.value_or(*most) >= *most) {
    assumptions.push_back(fmt::format(
        "sequence length {}: the model runs token by token, so that a longer one takes long to answer (--seq)", *most));
    return *most;
  }
  if (!context) {
    assumptions.push_back(fmt::format(
        "sequence length {}: the model has no positions, and config.json no length (--seq)", kDefaultSequenceLimit));
    return kDefaultSequenceLimit;
  }
  const std::int64_t trained = *context;
  std::int64_t length = std::min(trained, kDefaultSequenceLimit);
  if (shows_images(model)) {
    const ImageTextSpec& spec = *image_text_of(model);
    const std::int64_t places = spec.places(options.image_size.value_or(spec.image_size));
    while (length <= places && length < trained) length = std::min(trained, 2 * length);
  }
  assumptions.push_back("sequence length " + std::to_string(length) +
                        (length > kDefaultSequenceLimit ? ": room for the images and for text beside them (--seq)"
                         : length == trained
                             ? ": the model's trained context (--seq)"
                             : ": the model's trained context is " + std::to_string(trained) + ", of which at most " +
                                   std::to_string(kDefaultSequenceLimit) + " is taken by default (--seq)"));
  return length;
}

std::int64_t resolve_target_sequence(std::int64_t sequence, const RunOptions& options,
                                     std::vector<std::string>& assumptions) {
  if (options.target_sequence_length) return *options.target_sequence_length;
  assumptions.push_back("target sequence length " + std::to_string(sequence) + ": as the source (--target-seq)");
  return sequence;
}

std::int64_t resolve_image(const ModelSpec& model, const RunOptions& options, std::vector<std::string>& assumptions) {
  if (options.image_size) return *options.image_size;
  const std::int64_t size = trained_image_size(model);
  assumptions.push_back("images of " + std::to_string(size) + " x " + std::to_string(size) + " pixels (--image)");
  return size;
}

/// Each sequence shows as many images as the model's spec says, all of one size.
void resolve_images_in_text(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                            std::vector<std::string>& assumptions) {
  const ImageTextSpec& spec = *image_text_of(model);
  if (!spec.images) {
    assumptions.push_back(model.model_type +
                          " sees images, too: this is its text model alone, without vision tower and "
                          "projector (--images)");
    return;
  }
  if (*spec.images == 0) {
    assumptions.emplace_back("no images: the vision tower and its projector take memory all the same (--images)");
    return;
  }
  run.image_size = options.image_size.value_or(spec.image_size);
  const ImageSize size = spec.size_of_image(run.image_size);
  assumptions.push_back(
      fmt::format("each sequence shows {} image{} of {} x {} pixels, which take{} {} of its {} tokens "
                  "(--images, --image, --seq)",
                  *spec.images, *spec.images == 1 ? "" : "s", size.height, size.width, *spec.images == 1 ? "s" : "",
                  spec.places(run.image_size), run.sequence_length));
}

/// What a file of layers says about its input, unless --seq or --image say otherwise.
void resolve_custom_input(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                          std::vector<std::string>& assumptions) {
  const CustomSpec& spec = model.architecture.as<CustomSpec>();
  run.sequence_length = 1;  // one sample, unless it is a sequence of tokens
  if (const auto* tokens = std::get_if<custom::TokensInput>(&spec.input)) {
    run.sequence_length = options.sequence_length.value_or(tokens->length);
    if (!options.sequence_length) {
      assumptions.push_back("sequence length " + std::to_string(run.sequence_length) + ": as in the file (--seq)");
    }
  }
  if (const auto* images = std::get_if<custom::ImagesInput>(&spec.input)) {
    run.image_size = options.image_size.value_or(images->size);
    const std::string side = std::to_string(run.image_size);
    if (!options.image_size) {
      assumptions.push_back("images of " + side + " x " + side + " pixels: as in the file (--image)");
    }
  }
}

/// The sizes that a program leaves free: as it was recorded, unless they are asked for.
void resolve_program_sizes(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                           std::vector<std::string>& assumptions) {
  run.sequence_length = 1;
  const auto size = [&](const ProgramSymbol& symbol, std::optional<std::int64_t> asked, std::string_view flag) {
    if (!asked) {
      assumptions.push_back(fmt::format("{} {}: as the program was recorded ({})", symbol.name, symbol.recorded, flag));
    }
    return asked.value_or(symbol.recorded);
  };
  for (const ProgramSymbol& symbol : model.architecture.as<ProgramSpec>().program->symbols) {
    if (symbol.name == "sequence") run.sequence_length = size(symbol, options.sequence_length, "--seq");
    if (symbol.name == "target")
      run.target_sequence_length = size(symbol, options.target_sequence_length, "--target-seq");
    if (symbol.name == "image") run.image_size = size(symbol, options.image_size, "--image");
  }
}

}  // namespace

void resolve_input_sizes(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                         std::vector<std::string>& assumptions) {
  run.batch_size = resolve_batch(model, options, assumptions);
  if (is_custom(model)) {
    resolve_custom_input(model, options, run, assumptions);
  } else if (is_program(model)) {
    resolve_program_sizes(model, options, run, assumptions);
  } else if (is_vision(model)) {
    run.image_size = resolve_image(model, options, assumptions);
    run.sequence_length = 1;  // one sample is one image
  } else {
    run.sequence_length = resolve_sequence(model, options, assumptions);
    if (is_contrastive(model)) run.image_size = resolve_image(model, options, assumptions);
    if (image_text_of(model) != nullptr) resolve_images_in_text(model, options, run, assumptions);
  }
  if (run.task == Task::kSeq2Seq && options.inference && !options.target_sequence_length) {
    run.target_sequence_length = run.sequence_length;  // of labels that nobody takes
  } else if (run.task == Task::kSeq2Seq) {
    run.target_sequence_length = resolve_target_sequence(run.sequence_length, options, assumptions);
  }
}

}  // namespace memcalc

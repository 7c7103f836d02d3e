// Weights of one file, of shards and of directories; and what --model makes of them.
#include "memcalc/spec/weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "memcalc/spec/registry.h"
#include "support/error_text.h"
#include "support/registry.h"
#include "support/safetensors_writer.h"

namespace memcalc {
namespace {

using test::registry;

using test::safetensors_bytes;
using test::tensor_json;

class WeightFiles : public testing::Test {
 protected:
  // One tensor of two elements.
  [[nodiscard]] static std::string file_with(const std::string& tensor, const std::string& dtype = "F32") {
    const int bytes = dtype == "F32" ? 8 : dtype == "F8_E4M3" || dtype == "I8" ? 2 : 4;
    return safetensors_bytes(
        R"({")" + tensor + R"(": )" + tensor_json(dtype, "[2]", "[0, " + std::to_string(bytes) + "]") + "}",
        static_cast<std::uint64_t>(bytes));
  }
  [[nodiscard]] std::string index(const std::string& weight_map) const {
    return folder.write("model.safetensors.index.json",
                        R"({"metadata": {"total_size": 16}, "weight_map": )" + weight_map + "}");
  }
  [[nodiscard]] static std::string refusal(const std::string& path) {
    return error_text([&] { static_cast<void>(read_weights(path)); });
  }
  [[nodiscard]] std::string model_refusal(const std::string& path) const {
    return error_text([&] { static_cast<void>(registry().model(path)); });
  }

  test::Folder folder{std::string("weights_") + testing::UnitTest::GetInstance()->current_test_info()->name()};
};

TEST_F(WeightFiles, ShardsAreSummed) {
  static_cast<void>(folder.write("one.safetensors", file_with("a")));
  static_cast<void>(folder.write("sub/two.safetensors", file_with("b", "BF16")));
  const std::string path = index(R"({"b": "sub/two.safetensors", "a": "one.safetensors"})");
  const Weights weights = read_weights(path);
  EXPECT_EQ(weights.path, path);
  EXPECT_EQ(weights.files, (std::vector<std::string>{folder / "one.safetensors", folder / "sub/two.safetensors"}));
  EXPECT_EQ(weights.parameters, 4);
  EXPECT_EQ(weights.bytes, 12);
  EXPECT_EQ(loading_dtype(weights), DType::kFloat32);
  const std::vector<WeightTypeTotal> totals = totals_by_type(weights);
  ASSERT_EQ(totals.size(), 2U);
  EXPECT_EQ(totals[0].type.name, "F32");
  EXPECT_EQ(totals[0].bytes, 8);
  EXPECT_EQ(totals[1].parameters, 2);
}

TEST_F(WeightFiles, TransformersOrderDecidesWhatADirectoryHolds) {
  static_cast<void>(folder.write("one.safetensors", file_with("a")));
  EXPECT_EQ(find_weights(folder.str()), std::nullopt);
  EXPECT_EQ(read_weights(folder.str()).path, folder / "one.safetensors");  // the only one
  const std::string shards = index(R"({"a": "one.safetensors"})");
  EXPECT_EQ(find_weights(folder.str()), shards);
  EXPECT_EQ(read_weights(folder.str()).path, shards);
  const std::string single = folder.write("model.safetensors", file_with("a"));
  EXPECT_EQ(read_weights(folder.str()).path, single);
}

TEST_F(WeightFiles, AHubSnapshotIsMadeOfLinks) {
  static_cast<void>(folder.write("blobs/4d7a", file_with("a")));
  std::filesystem::create_directories(folder / "snapshots/1");
  std::filesystem::create_symlink("../../blobs/4d7a", folder / "snapshots/1/model.safetensors");
  EXPECT_EQ(read_weights(folder / "snapshots/1").parameters, 2);
}

TEST_F(WeightFiles, TheFirstFloatingTypeIsLoaded) {
  static_cast<void>(folder.write("1.safetensors", file_with("b", "F8_E4M3")));
  static_cast<void>(folder.write("2.safetensors", file_with("a", "BF16")));
  static_cast<void>(folder.write("3.safetensors", file_with("c", "F32")));
  EXPECT_EQ(loading_dtype(read_weights(index(R"({"a": "2.safetensors", "b": "1.safetensors", "c": "3.safetensors"})"))),
            DType::kBFloat16);
  static_cast<void>(folder.write("model.safetensors", file_with("b", "I8")));
  EXPECT_EQ(loading_dtype(read_weights(folder.str())), std::nullopt);
}

TEST_F(WeightFiles, WrongIndexesAreRefused) {
  static_cast<void>(folder.write("one.safetensors", file_with("a")));
  static_cast<void>(folder.write("two.safetensors", file_with("a")));
  const std::string path = folder / "model.safetensors.index.json";
  const auto refused = [&](const char* weight_map) { return refusal(index(weight_map)).substr(path.size()); };
  EXPECT_EQ(refused("{}"), ": /weight_map: found an object of 0; accepted: at least one tensor");
  EXPECT_EQ(refused("[]"), ": /weight_map: found an array of 0; accepted: an object");
  EXPECT_EQ(refused(R"({"a": 1})"), ": /weight_map/a: found 1; accepted: a string");
  EXPECT_EQ(refused(R"({"a": "three.safetensors"})"),
            ": /weight_map/a: found \"three.safetensors\", which is not there; accepted: a file that is");
  for (const char* shard :
       {"../x.safetensors", "sub/../../x.safetensors", "/etc/x.safetensors", "one.bin", "", "..", "one.safetensors/"}) {
    EXPECT_EQ(refused((R"({"a": ")" + std::string(shard) + R"("})").c_str()),
              ": /weight_map/a: found the string \"" + std::string(shard) +
                  "\"; accepted: a safetensors file in the directory of the index");
  }
  EXPECT_EQ(refused(R"({"a": "one.safetensors", "b": "one.safetensors"})"),
            ": /weight_map/b: found \"one.safetensors\"; accepted: the file that holds this tensor");
  EXPECT_EQ(refusal(index(R"({"a": "one.safetensors", "b": "two.safetensors"})")),
            (folder / "two.safetensors") +
                ": found tensor \"a\", which is in one.safetensors, too; accepted: each tensor once");
  EXPECT_EQ(refusal(folder.write("model.safetensors.index.json", "{}")), path + ": missing key \"weight_map\"");
  EXPECT_EQ(refusal(folder.write("model.safetensors.index.json", "")),
            path + ": the file is empty; accepted: a JSON object");
}

TEST_F(WeightFiles, LinksThatLeadNowhereAreRefused) {
  std::filesystem::create_symlink("model.safetensors", folder / "model.safetensors");
  EXPECT_EQ(refusal(folder.str()),
            (folder / "model.safetensors") + ": cannot be read: Too many levels of symbolic links");
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::create_symlink("../blobs/gone", folder / "model.safetensors");
  EXPECT_EQ(refusal(folder.str()), (folder / "model.safetensors") + ": cannot be read: No such file or directory");
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::create_directory_symlink(".", folder / "model.safetensors");
  EXPECT_EQ(refusal(folder.str()),
            (folder / "model.safetensors") + ": found a directory; accepted: a safetensors file");
}

TEST_F(WeightFiles, DirectoriesWithoutAnyAreRefused) {
  EXPECT_EQ(refusal(folder.str()), folder.str() + ": found no safetensors file; accepted: a directory with weights");
  static_cast<void>(folder.write("one.safetensors", file_with("a")));
  static_cast<void>(folder.write("two.safetensors", file_with("a")));
  EXPECT_EQ(refusal(folder.str()), folder.str() +
                                       ": found 2 safetensors files, none of them model.safetensors, and no "
                                       "model.safetensors.index.json; accepted: the path of one of them");
}

TEST_F(WeightFiles, ModelsTakeThemFromTheDirectoryOfTheirConfig) {
  static_cast<void>(folder.write("config.json", R"({"model_type": "bert"})"));
  EXPECT_EQ(registry().model(folder.str()).weights, nullptr);
  EXPECT_EQ(registry().model(folder.str()).checkpoint_dtype, std::nullopt);
  const std::string path = folder.write("model.safetensors", file_with("a", "BF16"));
  for (const std::string& reference : {folder.str(), path}) {
    const ModelSpec model = registry().model(reference);
    ASSERT_NE(model.weights, nullptr);
    EXPECT_EQ(model.weights->path, path);
    EXPECT_EQ(model.source, folder / "config.json");
    EXPECT_EQ(model.checkpoint_dtype, DType::kBFloat16);
    EXPECT_EQ(
        model.assumptions.back(),
        "dtype = bfloat16 (absent from config.json; that of the first tensor of the weights, as in transformers)");
  }
  EXPECT_EQ(registry().model(folder / "config.json").weights, nullptr);  // the config alone was asked for
  static_cast<void>(folder.write("config.json", R"({"model_type": "bert", "dtype": "float16"})"));
  EXPECT_EQ(registry().model(folder.str()).checkpoint_dtype, DType::kFloat16);
}

TEST_F(WeightFiles, AnUnknownArchitectureIsToldWithWhatIsKnown) {
  const std::string path = folder.write("mine.safetensors", file_with("a", "BF16"));
  const std::string text =
      ": found weights (2 parameters, BF16) and no config.json beside them, so the architecture is "
      "unknown; accepted: weights with the config.json of their model";
  EXPECT_EQ(model_refusal(path), path + text);
  EXPECT_EQ(model_refusal(folder.str()), folder.str() + text);
  EXPECT_EQ(model_refusal(folder / "absent.safetensors"),
            (folder / "absent.safetensors") + ": no such file or directory");
  EXPECT_EQ(model_refusal("absent.safetensors"), "absent.safetensors: no such file or directory");
}

}  // namespace
}  // namespace memcalc

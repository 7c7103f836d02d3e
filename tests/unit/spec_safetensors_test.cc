// Right headers are read exactly; every wrong one gives one line that says what was found and what is accepted.
#include "memcalc/spec/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "memcalc/base/error.h"
#include "support/error_text.h"
#include "support/safetensors_writer.h"

namespace memcalc {
namespace {

using test::safetensors_bytes;
using test::tensor_json;

class Safetensors : public testing::Test {
 protected:
  // The message without the path in front of it.
  [[nodiscard]] std::string refusal(const std::string& content) const {
    const std::string path = folder.write("w.safetensors", content);
    const std::string text = error_text([&] { static_cast<void>(read_safetensors_header(path)); });
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text.size() < path.size() + 2 ? text : text.substr(path.size() + 2);
  }
  [[nodiscard]] std::string refused_tensor(const std::string& tensor, std::uint64_t data_bytes) const {
    return refusal(safetensors_bytes(R"({"a": )" + tensor + "}", data_bytes));
  }

  test::Folder folder{std::string("safetensors_") + testing::UnitTest::GetInstance()->current_test_info()->name()};
};

TEST_F(Safetensors, ReadsNamesTypesAndShapes) {
  const std::string path = folder.write(
      "w.safetensors",
      safetensors_bytes(R"({"__metadata__": {"format": "pt"}, "z": )" + tensor_json("BF16", "[2, 3]", "[16, 28]") +
                            R"(, "scalar": )" + tensor_json("F64", "[]", "[0, 8]") + R"(, "empty": )" +
                            tensor_json("I8", "[0, 7]", "[8, 8]") + R"(, "packed": )" +
                            tensor_json("F4", "[4, 4]", "[8, 16]") + "}   ",
                        28));
  const std::vector<WeightTensor> tensors = read_safetensors_header(path);
  ASSERT_EQ(tensors.size(), 4U);
  EXPECT_EQ(tensors[0].name, "empty");
  EXPECT_EQ(tensors[0].elements, 0);
  EXPECT_EQ(tensors[1].name, "packed");
  EXPECT_EQ(tensors[1].elements, 16);
  EXPECT_EQ(tensors[1].bytes, 8);
  EXPECT_FALSE(tensors[1].type.dtype.has_value());
  EXPECT_EQ(tensors[2].name, "scalar");
  EXPECT_EQ(tensors[2].elements, 1);
  EXPECT_EQ(tensors[3].name, "z");
  EXPECT_EQ(tensors[3].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tensors[3].type.name, "BF16");
  EXPECT_EQ(tensors[3].type.dtype, DType::kBFloat16);
  EXPECT_EQ(tensors[3].bytes, 12);
}

TEST_F(Safetensors, NoTensorIsAFile) {
  EXPECT_TRUE(read_safetensors_header(folder.write("w.safetensors", safetensors_bytes("{}", 0))).empty());
}

TEST_F(Safetensors, KnowsEveryTypeAndItsSize) {
  const std::pair<const char*, int> bits[] = {
      {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},      {"I8", 8},
      {"F8_E4M3", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},        {"BF16", 16},   {"I32", 32},        {"U32", 32},    {"F32", 32},
      {"C64", 64},    {"F64", 64},        {"I64", 64},    {"U64", 64}};
  for (const auto& [name, size] : bits) {
    SCOPED_TRACE(name);
    const std::string bytes = std::to_string(size);  // of eight elements
    const std::string header = R"({"a": )" + tensor_json(name, "[8]", "[0, " + bytes + "]") + "}";
    const auto tensors =
        read_safetensors_header(folder.write("w.safetensors", safetensors_bytes(header, std::stoull(bytes))));
    EXPECT_EQ(tensors.at(0).type.name, name);
    EXPECT_EQ(tensors.at(0).bytes, size);
    EXPECT_EQ(size_of(tensors.at(0).type.dtype.value_or(DType::kBool)), tensors.at(0).type.dtype ? size / 8 : 1);
  }
}

TEST_F(Safetensors, RefusesWhatIsNoSafetensorsFile) {
  EXPECT_EQ(refusal(""), "the file is empty; accepted: a safetensors file");
  EXPECT_EQ(refusal("{\"a\""),
            "found 4 bytes; accepted: a safetensors file, whose first 8 bytes hold the length of its header");
  EXPECT_EQ(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 440473133\n"),
            "found a pointer of Git LFS; accepted: the file that 'git lfs pull' fetches");
  EXPECT_EQ(refusal("PK\x03\x04 and so on"), "found a zip archive, as torch.save writes; accepted: safetensors");
  EXPECT_EQ(refusal("{\"model_type\": \"bert\"}"),
            "found a header of 6875982213128462971 bytes; accepted: at most 100000000 bytes, the limit of safetensors");
}

TEST_F(Safetensors, RefusesWrongLengths) {
  EXPECT_EQ(refusal(safetensors_bytes("{}", 0, 3)),
            "found a header of 3 bytes in a file of 10 bytes; accepted: a whole safetensors file (it is truncated, or "
            "none)");
  EXPECT_EQ(refusal(safetensors_bytes("{}", 0, 100'000'001)),
            "found a header of 100000001 bytes; accepted: at most 100000000 bytes, the limit of safetensors");
  EXPECT_EQ(refusal(safetensors_bytes("{}", 0, ~std::uint64_t{0})),
            "found a header of 18446744073709551615 bytes; accepted: at most 100000000 bytes, the limit of "
            "safetensors");
  EXPECT_EQ(refusal(safetensors_bytes("", 0)), "header: the file is empty; accepted: a JSON object");
}

TEST_F(Safetensors, RefusesHeadersThatAreNoTensors) {
  EXPECT_EQ(refusal(safetensors_bytes("[1]", 0)), "header: found an array of 1; accepted: an object");
  EXPECT_EQ(refusal(safetensors_bytes("{\"a\"", 0)),
            "header: line 1, column 5: the file ends within a value: it is truncated");
  EXPECT_EQ(refusal(safetensors_bytes("{\"a\": {}, \"a\": {}}", 0)), "header: key \"a\" occurs more than once");
  EXPECT_EQ(refusal(safetensors_bytes("{\"a\": 1}", 0)), "header: /a: found 1; accepted: an object");
  EXPECT_EQ(refusal(safetensors_bytes("{\"a\": {}}", 0)), "header: /a: missing key \"dtype\"");
  EXPECT_EQ(refusal(safetensors_bytes("{\"__metadata__\": {\"a\": 1}}", 0)),
            "header: /__metadata__/a: found 1; accepted: a string");
}

TEST_F(Safetensors, RefusesWrongTypesAndShapes) {
  EXPECT_TRUE(refused_tensor(tensor_json("F33", "[1]", "[0, 4]"), 4)
                  .starts_with("header: /a/dtype: found the string \"F33\"; accepted: one of BOOL, F4, "));
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[-1]", "[0, 4]"), 4),
            "header: /a/shape/0: found -1; accepted: an integer of at least 0");
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[1.0]", "[0, 4]"), 4),
            "header: /a/shape/0: found 1.0; accepted: an integer of at least 0, written in digits only");
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[9223372036854775808]", "[0, 4]"), 4),
            "header: /a/shape/0: found 9223372036854775808; accepted: an integer of at least 0");
  EXPECT_EQ(refused_tensor(tensor_json("F32", "3", "[0, 4]"), 4),
            "header: /a/shape: found 3; accepted: an array of integers");
  // 8 EiB, and what overflows on the way.
  for (const char* shape : {"[2305843009213693952]", "[4294967296, 4294967296]", "[9223372036854775807, 2, 2]"}) {
    EXPECT_EQ(refused_tensor(tensor_json("F32", shape, "[0, 4]"), 4),
              std::string("header: /a/shape: found ") + shape + " of F32; accepted: a tensor of less than 2^63 bits");
  }
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[1,1,1,1,1,1,1,1,1]", "[0, 8]"), 8),
            "header: /a/data_offsets: found 8 bytes; accepted: 4, which [1, 1, 1, 1, 1, 1, 1, 1, …] of F32 takes");
  EXPECT_EQ(refused_tensor(tensor_json("F4", "[3]", "[0, 2]"), 2),
            "header: /a/data_offsets: found 2 bytes; accepted: a shape of whole bytes, which [3] of F4 is not");
}

TEST_F(Safetensors, RefusesWrongOffsets) {
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[2, 3]", "[0, 12]"), 12),
            "header: /a/data_offsets: found 12 bytes; accepted: 24, which [2, 3] of F32 takes");
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[1]", "[4, 0]"), 4),
            "header: /a/data_offsets: found an end of 0 before the begin of 4; accepted: begin and end");
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[1]", "[0]"), 4),
            "header: /a/data_offsets: found an array of 1; accepted: two integers, begin and end");
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[1]", "[0, -4]"), 4),
            "header: /a/data_offsets/1: found -4; accepted: an integer of at least 0");
  EXPECT_EQ(refused_tensor(tensor_json("F32", "[1]", "[4, 8]"), 8),
            "header: /a/data_offsets: found a begin of 4, which leaves a gap behind the tensor before; accepted: 0, "
            "where that one ends");
  const auto two = [](const char* second) {
    return R"({"a": )" + tensor_json("F32", "[2]", "[0, 8]") + R"(, "b": )" + tensor_json("F32", "[1]", second) + "}";
  };
  EXPECT_EQ(refusal(safetensors_bytes(two("[4, 8]"), 8)),
            "header: /b/data_offsets: found a begin of 4, which overlaps the tensor before; accepted: 8, where that "
            "one ends");
  EXPECT_EQ(refusal(safetensors_bytes(two("[12, 16]"), 16)),
            "header: /b/data_offsets: found a begin of 12, which leaves a gap behind the tensor before; accepted: 8, "
            "where that one ends");
  EXPECT_EQ(refusal(safetensors_bytes(two("[8, 12]"), 11)),
            "found 11 bytes behind the header; accepted: 12, which its tensors take (the file is truncated)");
  EXPECT_EQ(refusal(safetensors_bytes(two("[8, 12]"), 13)),
            "found 13 bytes behind the header; accepted: 12, which its tensors take (something follows them)");
}

TEST_F(Safetensors, RefusesWhatIsNoFile) {
  const auto message = [](const std::string& path) {
    return error_text([&] { static_cast<void>(read_safetensors_header(path)); }).substr(path.size());
  };
  EXPECT_EQ(message(folder / "absent.safetensors"), ": cannot be read: No such file or directory");
  EXPECT_EQ(message(folder.str()), ": found a directory; accepted: a safetensors file");
  std::filesystem::create_symlink("b.safetensors", folder / "a.safetensors");
  std::filesystem::create_symlink("a.safetensors", folder / "b.safetensors");
  EXPECT_EQ(message(folder / "a.safetensors"), ": cannot be read: Too many levels of symbolic links");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);  // opening it would wait for a writer
  EXPECT_EQ(message(folder / "pipe"), ": found a pipe; accepted: a safetensors file");
}

// Every prefix of a file is refused, and so is every file with one byte changed into something else, or it is read.
TEST_F(Safetensors, TruncationsAndChangedBytesAreRefusedInOneLine) {
  const std::string whole = safetensors_bytes(R"({"a": )" + tensor_json("BF16", "[2, 3]", "[0, 12]") + R"(, "b": )" +
                                                  tensor_json("F32", "[1]", "[12, 16]") + "}",
                                              16);
  EXPECT_EQ(read_safetensors_header(folder.write("w.safetensors", whole)).size(), 2U);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    EXPECT_GT(refusal(whole.substr(0, size)).size(), 10U);
  }
  int refused = 0;
  for (std::size_t at = 0; at < whole.size() - 16; ++at) {
    for (const char byte : {'\0', '"', '9', '{', '\x80', '\n', '-'}) {
      std::string changed = whole;
      changed[at] = byte;
      const std::string path = folder.write("w.safetensors", changed);
      const std::string text = error_text([&] { static_cast<void>(read_safetensors_header(path)); });
      if (text.empty()) continue;
      ++refused;
      EXPECT_TRUE(text.starts_with(path + ": ")) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
  EXPECT_GT(refused, 500);
}

// As many tensors as the JSON reader takes: the work must not grow with their square.
TEST_F(Safetensors, ManyTensorsAreRead) {
  std::string header = "{";
  constexpr int kTensors = 100'000;
  for (int i = 0; i < kTensors; ++i) {
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) +
              "\":" + tensor_json("U8", "[]", "[" + std::to_string(i) + "," + std::to_string(i + 1) + "]");
  }
  const auto path = folder.write("w.safetensors", safetensors_bytes(header + "}", kTensors));
  EXPECT_EQ(read_safetensors_header(path).size(), static_cast<std::size_t>(kTensors));
}

}  // namespace
}  // namespace memcalc

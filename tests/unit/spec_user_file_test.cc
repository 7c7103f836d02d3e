// spec/user_file.h
#include "memcalc/spec/user_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "memcalc/base/error.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

std::string refusal(const std::string& path, std::int64_t most_bytes = 1 << 20) {
  const std::string text = error_text([&] { (void)read_user_file(path, "a log", most_bytes); });
  return text.substr(std::min(text.size(), path.size()));
}

TEST(UserFile, IsReadWhole) {
  const std::string path = testing::TempDir() + "user_file.txt";
  std::ofstream(path, std::ios::binary) << std::string(100'000, 'x') << '\0' << "end";
  const std::string text = read_user_file(path, "a log", 1 << 20);
  EXPECT_EQ(text.size(), 100'004U);
  EXPECT_TRUE(text.ends_with("end"));
  EXPECT_EQ(open_user_file(path, "a log").size, 100'004);
  EXPECT_FALSE(read_user_file("/proc/self/status", "a log", 1 << 20).empty());  // a file whose size is said to be 0
}

TEST(UserFile, RefusesWhatHasNoEndOrWouldBeWaitedFor) {
  EXPECT_EQ(refusal("/nowhere/x"), ": cannot be read: No such file or directory");
  EXPECT_EQ(refusal("/dev/zero"), ": found a device; accepted: a log");
  EXPECT_EQ(refusal("/tmp"), ": found a directory; accepted: a log");
  const std::string pipe = testing::TempDir() + "user_file_pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refusal(pipe), ": found a pipe; accepted: a log");
  const std::string large = testing::TempDir() + "user_file_large";
  std::ofstream(large) << std::string((1 << 20) + 1, 'x');
  EXPECT_EQ(refusal(large), ": larger than 1 MiB; accepted: a log");
  std::filesystem::resize_file(large, 10'000'000'000);  // sparse: refused by its size, without reading
  EXPECT_EQ(refusal(large, std::int64_t{1} << 33U), ": larger than 8192 MiB; accepted: a log");
}

TEST(UserFile, AStreamIsReadUpToALimit) {
  const auto read = [](const char* path, std::int64_t most_bytes) {
    const std::unique_ptr<std::FILE, FileCloser> stream(std::fopen(path, "rb"));
    return read_to_end(stream.get(), "standard input", "a log", most_bytes);
  };
  EXPECT_EQ(error_text([&] { (void)read("/dev/zero", 3 << 20); }),
            "standard input: larger than 3 MiB; accepted: a log");
  const std::string path = testing::TempDir() + "user_file_stream";
  std::ofstream(path) << std::string(3 << 20, 'x');
  EXPECT_EQ(read(path.c_str(), 3 << 20), std::string(3 << 20, 'x'));
}

TEST(UserFile, ALongPathIsShownByItsEnd) {
  EXPECT_EQ(shown_path("a/b\n.json"), "a/b\\n.json");
  const std::string shown = shown_path(std::string(4000, 'a') + "ä/config.json");
  EXPECT_LT(shown.size(), 200U);
  EXPECT_TRUE(shown.starts_with("…a"));
  EXPECT_TRUE(shown.ends_with("ä/config.json"));
}

}  // namespace
}  // namespace memcalc

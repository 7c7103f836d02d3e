// report/render_lists: the answers of `memcalc models` and `memcalc gpus`.
#include "memcalc/report/render_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace memcalc {
namespace {

using ::testing::HasSubstr;

std::vector<ModelListing> models() {
  return {{.name = "bert-large",
           .model_type = "bert",
           .published_parameters = 335141888,
           .parameters = 335141888,
           .tasks = {Task::kSequenceClassification, Task::kMaskedLm},
           .measured = {Task::kMaskedLm},
           .aliases = {"google-bert/bert-large-uncased", "bert-l"},
           .source = "a, b",
           .date = "2026-11-01"},
          {.name = "mine", .model_type = "llama", .source = "c", .date = "2026-11-02", .recalled = true}};
}

std::vector<DeviceListing> gpus() {
  return {{.name = "h100-sxm",
           .description = "NVIDIA H100",
           .memory_bytes = 85017493504,
           .memory_bandwidth_bytes_per_second = 3.35e12,
           .half_flops_per_second = 9.89e14,
           .validated = true,
           .source = "s",
           .date = "2026-11-01"},
          {.name = "odd", .memory_bytes = kGiB}};
}

TEST(RenderLists, Text) {
  EXPECT_EQ(render(models(), Format::kText),
            "model       family   parameters  also known as\n"
            "bert-large  bert    335,141,888  google-bert/bert-large-uncased\n"
            "mine        llama             -\n");
  EXPECT_EQ(render(gpus(), Format::kText),
            "gpu         memory   bandwidth       16-bit  measured\n"
            "h100-sxm  79.2 GiB  3,350 GB/s  989 TFLOP/s  yes\n"
            "odd       1.00 GiB           -            -  -\n");
}

TEST(RenderLists, CsvIsTheRecord) {
  EXPECT_EQ(
      render(models(), Format::kCsv),
      "name,model_type,published_parameters,parameters,tasks,measured_tasks,aliases,source,date\n"
      "bert-large,bert,335141888,335141888,\"seqcls, mlm\",mlm,\"google-bert/bert-large-uncased, bert-l\",\"a, b\","
      "2026-11-01\n"
      "mine,llama,,,,,,c,2026-11-02\n");
  EXPECT_THAT(render(gpus(), Format::kCsv),
              HasSubstr("h100-sxm,NVIDIA H100,85017493504,3350000000000,989000000000000,true,s,2026-11-01\n"));
}

TEST(RenderLists, Markdown) {
  EXPECT_EQ(render(models(), Format::kMarkdown),
            "| model | family | parameters | also known as | measured |\n"
            "| --- | --- | ---: | --- | --- |\n"
            "| bert-large | bert | 335,141,888 | google-bert/bert-large-uncased | yes |\n"
            "| mine | llama | - |  | - |\n");
}

TEST(RenderLists, Json) {
  EXPECT_THAT(render(models(), Format::kJson), HasSubstr("\"published_parameters\": 335141888"));
  EXPECT_THAT(render(gpus(), Format::kJson), HasSubstr("\"memory_bytes\": 85017493504"));
}

TEST(RenderLists, NothingIsAHeaderOnly) {
  EXPECT_EQ(render(std::vector<ModelListing>{}, Format::kCsv),
            "name,model_type,published_parameters,parameters,tasks,measured_tasks,aliases,source,date\n");
}

}  // namespace
}  // namespace memcalc

# cmake -DTABLE=specs/measured/DIRECTORY/FILE.txt -DOUTPUT=FILE.inc -P ConvolutionTable.cmake
# The sections of such a table as arrays of C++.
file(READ ${TABLE} text)
string(REGEX REPLACE "^(#[^\n]*\n)+" "" text "${text}")
string(REPLACE "[batches]\n{" "constexpr std::int64_t kBatches[] = {" text "${text}")
string(REPLACE "},\n[sequences]\n" "};\nconstexpr std::int64_t kSequences[][std::size(kBatches)] = {\n" text "${text}")
string(REPLACE "[rows]\n" "};\nconstexpr Row kRows[] = {\n" text "${text}")
string(REPLACE "[trees]\n" "constexpr Tree kTrees[] = {\n" text "${text}")
string(REPLACE "[nodes]\n" "};\nconstexpr Node kNodes[] = {\n" text "${text}")
string(REPLACE "[times]\n" "constexpr Time kTimes[] = {\n" text "${text}")
string(REPLACE "[products]\n" "constexpr TimedProduct kProducts[] = {\n" text "${text}")
string(REPLACE "[attentions]\n" "};\nconstexpr TimedAttention kAttentions[] = {\n" text "${text}")
file(WRITE ${OUTPUT} "// Generated from ${TABLE}\n${text}};\n")

#include "memcalc/report/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "memcalc/report/quantity.h"

namespace memcalc {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 460;
constexpr double kLeft = 76;
constexpr double kTop = 56;
constexpr double kBottom = 396;
constexpr double kRight = 740;                      // the legend stands beyond
constexpr double kTallest = 1.06;                   // of the axis over the tallest stack
constexpr double kCharacter = 7;                    // about the width of one
constexpr double kBelow = 14;                       // from the axis to its labels, and from these to the lower edge
constexpr double kSlant = 40;                       // degrees
constexpr double kDegree = 3.14159265358979 / 180;  // in radians

// Okabe and Ito's colours, which colour-blind people can tell apart, four more for the categories that few runs have,
// and greys for what is no tensor.
constexpr std::array<std::string_view, 12> kColors = {"#0072b2", "#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00",
                                                      "#f0e442", "#8c6bb1", "#8c510a", "#80cdc1", "#b3de69", "#003c30"};
constexpr std::array<std::string_view, 3> kGreys = {"#d9d9d9", "#bdbdbd", "#8c8c8c"};

std::string num(double value) { return format_fixed(value, 1); }

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

/// "20 GiB" of "20.0 GiB": ticks are round.
std::string tick_of(Bytes bytes) {
  std::string text = format_bytes(bytes);
  for (const std::string_view zeros : {".00 ", ".0 "}) {
    if (const std::size_t at = text.find(zeros); at != std::string::npos) return text.erase(at, zeros.size() - 1);
  }
  return text;
}

class Drawing {
 public:
  explicit Drawing(const StackedPlot& plot) : plot_(plot) {
    for (const PlotLayer& layer : plot.layers) positions_ = std::max(positions_, layer.bytes.size());
    Bytes tallest = plot.limit.value_or(0);
    for (std::size_t i = 0; i < positions_; ++i) tallest = std::max(tallest, height_at(i, plot.layers.size()));
    top_ = std::max(1.0, static_cast<double>(tallest) * kTallest);
    longest_ = 1;
    for (const std::string& label : plot.labels) longest_ = std::max(longest_, columns_of(label));
    const std::string height = num(std::max(kHeight, kBottom + kBelow + drop_of_labels() + kBelow));
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + num(kWidth) + "\" height=\"" + height +
           "\" viewBox=\"0 0 " + num(kWidth) + " " + height +
           "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    text(kLeft, 24, plot.title, "start", " font-size=\"16\" font-weight=\"bold\"");
    text(kLeft, 42, plot.subtitle, "start", " fill=\"#666\"");
    draw_grid();
  }

  [[nodiscard]] std::string bars() {
    const double slot = slot_of_bars();
    const double width = std::min(48.0, slot * 0.8);
    for (std::size_t i = 0; i < positions_; ++i) {
      const double x = kLeft + slot * (static_cast<double>(i) + 0.5) - width / 2;
      for (std::size_t k = 0; k < plot_.layers.size(); ++k) {
        const double lower = y_of(height_at(i, k));
        const double upper = y_of(height_at(i, k + 1));
        if (lower - upper < 0.05) continue;
        out_ += "<rect x=\"" + num(x) + "\" y=\"" + num(upper) + "\" width=\"" + num(width) + "\" height=\"" +
                num(lower - upper) + "\" fill=\"" + color_of(k) + "\"><title>" +
                escaped(plot_.labels[i] + ", " + plot_.layers[k].name + ": " + format_bytes(plot_.layers[k].bytes[i])) +
                "</title></rect>\n";
      }
    }
    draw_labels();
    return finish();
  }

  [[nodiscard]] std::string areas() {
    const double slot = (kRight - kLeft) / static_cast<double>(std::max<std::size_t>(positions_, 2) - 1);
    for (std::size_t k = 0; k < plot_.layers.size(); ++k) {
      std::string path;
      for (std::size_t i = 0; i < positions_; ++i) {
        path +=
            (i == 0 ? "M" : "L") + num(kLeft + slot * static_cast<double>(i)) + " " + num(y_of(height_at(i, k + 1)));
      }
      for (std::size_t i = positions_; i-- > 0;) {
        path += "L" + num(kLeft + slot * static_cast<double>(i)) + " " + num(y_of(height_at(i, k)));
      }
      out_ += "<path d=\"" + path + "Z\" fill=\"" + color_of(k) + "\"/>\n";
    }
    draw_spans(slot);
    draw_mark(slot);
    text((kLeft + kRight) / 2, kBottom + 44, plot_.x_label, "middle");
    return finish();
  }

 private:
  [[nodiscard]] double slot_of_bars() const {
    return (kRight - kLeft) / static_cast<double>(std::max<std::size_t>(positions_, 1));
  }
  [[nodiscard]] double length_of_labels() const { return kCharacter * static_cast<double>(longest_); }

  /// Degrees by which labels below bars are turned: not at all, slanted, or upright where the first would begin beyond
  /// the left edge.
  [[nodiscard]] double turn_of_labels() const {
    if (length_of_labels() <= slot_of_bars()) return 0;
    const double begin = kLeft + slot_of_bars() / 2 - length_of_labels() * std::cos(kSlant * kDegree);
    return begin < 0 ? 90 : kSlant;
  }
  [[nodiscard]] double drop_of_labels() const { return length_of_labels() * std::sin(turn_of_labels() * kDegree); }

  /// The lowest `layers` layers on top of each other.
  [[nodiscard]] Bytes height_at(std::size_t position, std::size_t layers) const {
    Bytes sum = 0;
    for (std::size_t k = 0; k < layers; ++k) {
      if (position < plot_.layers[k].bytes.size()) sum += plot_.layers[k].bytes[position];
    }
    return sum;
  }

  [[nodiscard]] double y_of(Bytes bytes) const {
    return kBottom - (kBottom - kTop) * static_cast<double>(bytes) / top_;
  }

  [[nodiscard]] std::string color_of(std::size_t layer) const {
    std::size_t alike = 0;  // layers of this kind below
    for (std::size_t k = 0; k < layer; ++k) alike += plot_.layers[k].is_tensors == plot_.layers[layer].is_tensors;
    const auto of = [&](const auto& colors) { return std::string(colors[alike % colors.size()]); };
    return plot_.layers[layer].is_tensors ? of(kColors) : of(kGreys);
  }

  void text(double x, double y, std::string_view words, std::string_view anchor, std::string_view more = {}) {
    out_ += "<text x=\"" + num(x) + "\" y=\"" + num(y) + "\" text-anchor=\"" + std::string(anchor) + "\"" +
            std::string(more) + ">" + escaped(words) + "</text>\n";
  }

  void line(double x1, double y1, double x2, double y2, std::string_view style) {
    out_ += "<line x1=\"" + num(x1) + "\" y1=\"" + num(y1) + "\" x2=\"" + num(x2) + "\" y2=\"" + num(y2) + "\" " +
            std::string(style) + "/>\n";
  }

  /// About five round values of a binary unit.
  void draw_grid() {
    double step = 1;
    while (top_ / step > 1024) step *= 1024;
    for (const double factor : {1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0}) {
      if (top_ / (step * factor) > 6) continue;
      step *= factor;
      break;
    }
    for (double value = 0; value <= top_; value += step) {
      const double y = y_of(static_cast<Bytes>(value));
      line(kLeft, y, kRight, y, value == 0 ? "stroke=\"#222\"" : "stroke=\"#ddd\"");
      text(kLeft - 8, y + 4, tick_of(static_cast<Bytes>(value)), "end");
    }
  }

  void draw_labels() {
    const double slot = slot_of_bars(), turn = turn_of_labels();
    const double room = turn > 0 ? 16 : slot;  // for one label
    const auto every = static_cast<std::size_t>(std::max(1.0, std::ceil(room / slot)));
    for (std::size_t i = 0; i < plot_.labels.size(); i += every) {
      const double x = kLeft + slot * (static_cast<double>(i) + 0.5);
      const double y = kBottom + 18;
      if (turn == 0) {
        text(x, y, plot_.labels[i], "middle");
      } else {
        text(x, y - 4, plot_.labels[i], "end",
             " transform=\"rotate(-" + format_fixed(turn, 0) + " " + num(x) + " " + num(y - 4) + ")\"");
      }
    }
    text(kRight + 12, kBottom + 4, plot_.x_label, "start", " fill=\"#666\"");
  }

  void draw_spans(double slot) {
    for (const PlotSpan& span : plot_.spans) {
      const double from = kLeft + slot * static_cast<double>(span.first);
      const double to = kLeft + slot * static_cast<double>(span.last);
      line(from, kTop, from, kBottom + 6, "stroke=\"#666\" stroke-dasharray=\"2 3\"");
      if (to - from > kCharacter * static_cast<double>(span.name.size()))
        text((from + to) / 2, kBottom + 18, span.name, "middle");
    }
  }

  void draw_mark(double slot) {
    if (!plot_.marked) return;
    const double x = kLeft + slot * static_cast<double>(*plot_.marked);
    const double y = y_of(height_at(*plot_.marked, plot_.layers.size()));
    out_ += "<circle cx=\"" + num(x) + "\" cy=\"" + num(y) + "\" r=\"4\" fill=\"#d00\"/>\n";
    const bool left = x < (kLeft + kRight) / 2;
    text(x + (left ? 8 : -8), y - 8, plot_.marked_label, left ? "start" : "end", " font-weight=\"bold\"");
  }

  std::string finish() {
    if (plot_.limit) {
      const double y = y_of(*plot_.limit);
      line(kLeft, y, kRight, y, "stroke=\"#d00\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"");
      text(kRight - 4, y - 5, plot_.limit_label, "end",  // also over a bar
           " fill=\"#d00\" stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\"");
    }
    double y = kTop + 10;
    for (std::size_t k = plot_.layers.size(); k-- > 0;) {
      const auto& bytes = plot_.layers[k].bytes;
      if (std::all_of(bytes.begin(), bytes.end(), [](Bytes each) { return each == 0; })) continue;
      out_ += "<rect x=\"" + num(kRight + 18) + "\" y=\"" + num(y - 10) + "\" width=\"12\" height=\"12\" fill=\"" +
              color_of(k) + "\"/>\n";
      text(kRight + 36, y, plot_.layers[k].name, "start");
      y += 20;
    }
    return std::move(out_) + "</svg>\n";
  }

  const StackedPlot& plot_;
  std::size_t positions_ = 0;
  std::size_t longest_ = 1;  // characters of a label
  double top_ = 1;           // bytes at the upper end of the axis
  std::string out_;
};

}  // namespace

std::string stacked_bars(const StackedPlot& plot) { return Drawing(plot).bars(); }
std::string stacked_areas(const StackedPlot& plot) { return Drawing(plot).areas(); }

}  // namespace memcalc

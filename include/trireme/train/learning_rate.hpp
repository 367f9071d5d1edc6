// The learning rate as a pure function of the samples of successful updates so far.
//
// The formulas are Megatron-LM's: update k (from 0) of a constant batch G uses the rate at n = k *
// G, so the first update of a warm-up from 0 uses 0. After the warm-up the rate never rises and is
// never below the floor; after the end it is constant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/settings.hpp"

namespace trireme {

// Lengths in samples (sequences).
struct LearningRate {
  ScheduleSettings::Kind kind = ScheduleSettings::Kind::cosine;
  ScheduleSettings::WsdKind wsd_kind = ScheduleSettings::WsdKind::exponential;
  double initial = 0;  // rate at n = 0 where there is a warm-up
  double maximum = 0;
  double minimum = 0;
  int64_t warmup = 0;     // 0: none
  int64_t decay = 0;      // end of the decay, counted from 0
  int64_t wsd_decay = 0;  // length of the last phase of wsd
};

// Steps of the deck are steps of the final global batch. Throws Error(bad_data) when they overflow
// in samples (a checked deck cannot).
LearningRate learning_rate_of(const Settings& settings);

double learning_rate_at(const LearningRate& schedule, int64_t samples);

// The schedule as lines `key = value`, without what has no effect: equal texts are equal courses of
// the rate. For checkpoint headers.
std::string schedule_text(const LearningRate& schedule);
// Nothing where the text is not one of schedule_text's.
std::optional<LearningRate> parse_schedule(const std::string& text);
// "maximum = 0.002 in the checkpoint, 0.0005 in the deck", one for each line that differs.
std::vector<std::string> schedule_differences(const std::string& stored, const std::string& now);

}  // namespace trireme

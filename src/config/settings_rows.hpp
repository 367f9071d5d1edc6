// The rows of the table of settings, one function for each section. Private to the config folder.
#pragma once

#include <type_traits>
#include <vector>

#include "trireme/config/settings_table.hpp"

namespace trireme {

// Binds a row to a member: FieldOf(&Settings::grid)(&GridSettings::tp).
template <class Section>
class FieldOf {
 public:
  explicit FieldOf(Section Settings::*section) : section_(section) {}
  template <class T>
  std::function<SettingField(Settings&)> operator()(T Section::*member) const {
    return [section = section_, member](Settings& settings) -> SettingField {
      T& value = settings.*section.*member;
      if constexpr (std::is_enum_v<T>) {
        static_assert(std::is_same_v<std::underlying_type_t<T>, uint8_t>);
        return reinterpret_cast<uint8_t*>(&value);
      } else {
        return &value;
      }
    };
  }

 private:
  Section Settings::*section_;
};

// Upper bounds that keep every count of parameters, FLOPs and bytes inside 64 bits.
constexpr double kMostRanks = 32768;
constexpr double kMostSteps = 1e12;
constexpr double kMostTokens = 4194304;  // of a sequence
constexpr double kMostSequences = 1e9;   // of a step
constexpr double kMostLayers = 4096;
constexpr double kMostWidth = 1048576;

std::vector<Setting> run_rows();
std::vector<Setting> grid_rows();
std::vector<Setting> model_rows();
std::vector<Setting> precision_rows();
std::vector<Setting> batch_rows();
std::vector<Setting> optimizer_rows();
std::vector<Setting> schedule_rows();
std::vector<Setting> data_rows();
std::vector<Setting> checkpoint_rows();
std::vector<Setting> log_rows();
std::vector<Setting> fault_rows();

}  // namespace trireme

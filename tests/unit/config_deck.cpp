// Reading decks: every error at once with its place, strict values, overrides, round trips.
#include <gtest/gtest.h>

#include <algorithm>
#include <locale>
#include <random>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/config/deck.hpp"

namespace trireme {
namespace {

const char* const kDeck =
    "[run]\nsteps = 10\n"
    "[model]\nfamily = gpt2\nlayers = 2\nhidden = 24\nheads = 3\nvocab = 61\n"
    "[batch]\nsequence = 8\nglobal = 6\nmicro = 1\n";

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {},
                     int ranks = 0) {
  try {
    parse_deck(text, "a.ini", overrides, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_config);
    return error.what();
  }
  return "";
}

Settings settings_of(const std::vector<std::string>& overrides) {
  return parse_deck(kDeck, "a.ini", overrides).settings;
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "missing: " << part << "\nin: " << text;
}

TEST(Deck, ReadsValuesCommentsAndOverrides) {
  const std::string text = std::string("\xEF\xBB\xBF# first\r\n") + kDeck +
                           "[grid]   # ranks\r\n  tp=3# no blank\r\n[data]\npath = a b=c # path\n";
  const std::vector<std::string> overrides = {"--grid.pp=2", "--optimizer.learning_rate=1e-3",
                                              "--run.steps=12"};
  const Deck deck = parse_deck(text, "a.ini", overrides);
  EXPECT_EQ(deck.settings.grid.tp, 3);
  EXPECT_EQ(deck.settings.grid.pp, 2);
  EXPECT_EQ(deck.settings.run.steps, 12);
  EXPECT_EQ(deck.settings.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(deck.settings.data.path, "a b=c");
  EXPECT_TRUE(deck.given.contains("grid.pp"));
  EXPECT_FALSE(deck.given.contains("grid.dp"));
}

TEST(Deck, ResolvesDerivedValues) {
  const Settings s = settings_of({});
  EXPECT_EQ(s.model.kv_heads, 3);
  EXPECT_EQ(s.model.head_size, 8);
  EXPECT_EQ(s.model.ffn, 96);
  EXPECT_EQ(s.model.positions, 8);
  EXPECT_EQ(s.schedule.decay, 10);
  EXPECT_EQ(s.run.directory, "runs/a");
  EXPECT_TRUE(s.model.tied && s.model.bias);
  const Settings llama = settings_of({"--model.family=llama", "--model.ffn=44"});
  EXPECT_FALSE(llama.model.tied || llama.model.bias);
  EXPECT_EQ(llama.model.rope_base, 500000);
  EXPECT_EQ(llama.model.positions, 0);
}

TEST(Deck, ListsEveryErrorWithItsPlace) {
  const std::string text =
      "[run]\nsteps = 10\nstep = 3\nthis is no assignment\nseed = -5\n"
      "[modle]\nlayers = 4\n"
      "[model]\nfamily = gpt3\nlayers = 4k\nhidden = 24\nhidden = 32\nheads = 5\nvocab = 61\n"
      "tp = 2\n[batch\n = 3\n[batch]\nsequence = 8\nglobal = 6\n";
  const std::string error =
      error_of(text, {"--grid.tpp=2", "grid.tp=2", "--grid.pp", "--data.kind="});
  expect_contains(error, "a.ini: 14 errors");
  expect_contains(error, "a.ini:3: unknown key run.step; the nearest valid key is run.steps");
  expect_contains(error, "a.ini:4: expected `key = value`");
  expect_contains(error, "a.ini:5: run.seed = `-5`");
  expect_contains(error, "a.ini:6: unknown section [modle]; the nearest valid one is [model]");
  expect_contains(error, "a.ini:9: model.family = `gpt3`: allowed is one of gpt2, llama");
  expect_contains(error, "a.ini:10: model.layers = `4k`: allowed is a whole number, 1 to 4096");
  expect_contains(error, "a.ini:12: model.hidden was given already, at a.ini:11");
  expect_contains(error, "a.ini:15: unknown key model.tp; the nearest valid key is grid.tp");
  expect_contains(error, "a.ini:16: `[batch` does not end with ]");
  expect_contains(error, "(--grid.tpp=2): unknown key grid.tpp; the nearest valid key is grid.tp");
  expect_contains(error, "(grid.tp=2): expected --section.key=value");
  expect_contains(error, "(--grid.pp): expected --section.key=value");
  expect_contains(error, "(--data.kind=): data.kind = ``: allowed is one of mock, indexed");
  // No rule is checked with a value that was not read, or given twice.
  EXPECT_EQ(error.find("multiple of model.heads"), std::string::npos);
  EXPECT_LT(error.find("a.ini:3:"), error.find("a.ini:4:"));
  EXPECT_LT(error.find("a.ini:16:"), error.find("command line"));
}

TEST(Deck, GuessesNothing) {
  expect_contains(error_of(kDeck, {"--run.st=3"}), "unknown key run.st");
  expect_contains(error_of(kDeck, {"--run.steps=3", "--run.steps=4"}), "was given already");
  expect_contains(error_of(kDeck, {"--Run.Steps=3"}), "nearest valid key is run.steps");
  expect_contains(error_of(std::string(kDeck) + "[run]\nsteps = 11\n"), "already, at a.ini:2");
}

TEST(Deck, NamesMissingKeys) {
  const std::string error = error_of("");
  for (const char* key : {"run.steps", "model.family", "model.layers", "model.hidden",
                          "model.heads", "model.vocab", "batch.sequence", "batch.global"})
    expect_contains(error, std::string("a.ini: ") + key + " is missing");
  expect_contains(error, "8 errors");
}

TEST(Deck, RefusesHalfNumbers) {
  for (const char* value :
       {"4k", "0x4", "1e1", "1.0", "+4", "", "--4", "99999999999999999999", "4,0",
        "\xC2\xA0"
        "4",
        "four", "-1", "4097"})
    expect_contains(error_of(kDeck, {std::string("--model.layers=") + value}),
                    "whole number, 1 to 4096");
  for (const char* value :
       {"nan", "inf", "-inf", "0,1", "1e999", "1e-3x", "0x1p3", "", "-0.1", "1"})
    expect_contains(error_of(kDeck, {std::string("--model.dropout=") + value}),
                    "number, 0 and below 1");
  for (const char* value : {"maybe", "TRUE", "2", ""})
    expect_contains(error_of(kDeck, {std::string("--model.bias=") + value}), "true or false");
  expect_contains(error_of(kDeck, {"--data.path=\"a\""}), "without quotes");
  expect_contains(error_of(kDeck, {"--data.path=a#b"}), "starts a comment");
  EXPECT_EQ(settings_of({"--model.dropout=0.5", "--model.bias=off"}).model.dropout, 0.5);
}

// Decimal commas and grouped thousands, as German writes them, without an installed locale.
class GermanNumbers : public std::numpunct<char> {
 protected:
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Deck, LocaleDoesNotMatter) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new GermanNumbers));
  const Settings settings = settings_of({"--model.dropout=0.25", "--run.seed=1234567"});
  const std::string text = to_deck_text(settings);
  const std::string refused = error_of(kDeck, {"--model.dropout=0,25"});
  std::locale::global(before);
  EXPECT_EQ(settings.model.dropout, 0.25);
  EXPECT_EQ(settings.run.seed, 1234567);
  expect_contains(text, "seed = 1234567 ");
  expect_contains(text, "dropout = 0.25 ");
  expect_contains(refused, "number, 0 and below 1");
}

TEST(Deck, ResolvedTextReadsBackBitByBit) {
  const Deck deck =
      parse_deck(kDeck, "a.ini",
                 std::vector<std::string>{
                     "--optimizer.learning_rate=0.1", "--optimizer.beta2=0.98765432109876543",
                     "--model.init_std=1e-301", "--model.recompute=full", "--data.kind=indexed",
                     "--data.path=some where/x", "--schedule.kind=wsd", "--schedule.wsd_decay=3",
                     "--schedule.wsd_kind=minus_sqrt", "--log.level=debug"});
  const std::string text = to_deck_text(deck.settings);
  const Deck again = parse_deck(text, "other/name.ini", {});
  EXPECT_EQ(to_deck_text(again.settings), text);
  for (const Setting& row : settings_table())
    EXPECT_EQ(value_text(row, again.settings), value_text(row, deck.settings)) << row.name;
  EXPECT_EQ(again.settings.optimizer.beta2, 0.98765432109876543);
  EXPECT_EQ(again.settings.optimizer.learning_rate, 0.1);
  EXPECT_EQ(again.given.size(), settings_table().size());
}

// Every row is bound to a member of its own: a value set through one row changes this row only.
TEST(Deck, RowsDoNotShareMembers) {
  for (const Setting& row : settings_table()) {
    Settings changed;
    const std::string before = value_text(row, changed);
    std::string after;
    for (const char* value : {"1", "0.5", "2", "0", "true", "false", "text"})
      if (set_value(row, changed, value).empty() && value_text(row, changed) != before) break;
    for (const std::string& choice : row.choices)
      if (choice != before) set_value(row, changed, choice);
    ASSERT_NE(value_text(row, changed), before) << row.name;
    for (const Setting& other : settings_table())
      if (other.name != row.name) {
        EXPECT_EQ(value_text(other, changed), value_text(other, Settings())) << row.name;
      }
  }
}

TEST(Deck, NotesValuesWithoutEffect) {
  const std::vector<std::string> overrides = {"--model.rope_base=20000", "--schedule.wsd_decay=3",
                                              "--data.order=random", "--model.rope_factor=0"};
  const Deck deck = parse_deck(kDeck, "a.ini", overrides);
  ASSERT_EQ(deck.notes.size(), 3u);
  expect_contains(deck.notes[0], "data.order = random has no effect without data.kind = indexed");
  expect_contains(deck.notes[1],
                  "model.rope_base = 20000 has no effect without model.family = llama");
  expect_contains(deck.notes[2],
                  "schedule.wsd_decay = 3 has no effect without schedule.kind = wsd");
  EXPECT_TRUE(parse_deck(to_deck_text(settings_of({})), "a.ini", {}).notes.empty());
}

// The keys and values that `only_with` names exist.
TEST(Deck, ConditionsOfRowsCanBeMet) {
  for (const Setting& row : settings_table()) {
    if (row.only_with.empty()) continue;
    const size_t equals = row.only_with.find(" = ");
    const Setting* other = find_setting(row.only_with.substr(0, equals));
    ASSERT_NE(other, nullptr) << row.only_with;
    Settings settings;
    EXPECT_EQ(set_value(*other, settings, row.only_with.substr(equals + 3)), "");
    EXPECT_TRUE(has_effect(row, settings));
  }
}

TEST(Deck, MissingFileIsNoInput) {
  for (const char* path : {"/nowhere/deck.ini", "/tmp"}) {
    try {
      read_deck(path, {});
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::no_input);
      expect_contains(error.what(), path);
    }
  }
}

// Random bytes and mutated decks end in settings or in Error, never otherwise.
TEST(Deck, SurvivesNonsense) {
  std::mt19937 random(7);
  const std::string good = to_deck_text(settings_of({}));
  for (int round = 0; round < 300; ++round) {
    std::string text = round % 2 == 0 ? good : std::string(500, '\n');
    const int changes = round % 2 == 0 ? 1 + round % 5 : 500;
    for (int i = 0; i < changes; ++i)
      text[random() % text.size()] = static_cast<char>(random() % 256);
    const std::string argument = text.substr(random() % text.size(), 20);
    try {
      parse_deck(text, "a.ini", {}, 4);
      parse_deck(text, "a.ini", std::vector<std::string>{argument, "--" + argument}, 4);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_config) << error.what();
    }
  }
  expect_contains(error_of(std::string((1 << 20) + 1, 'x')), "not a deck");
}

TEST(Deck, SectionTextIsTheSameForEveryLayout) {
  const Settings one = settings_of({});
  const Settings two =
      settings_of({"--grid.tp=3", "--optimizer.zero=0", "--optimizer.bucket=77",
                   "--model.recompute=full", "--batch.micro=2", "--checkpoint.every=3"});
  for (const char* section : {"model", "optimizer", "data", "batch"})
    EXPECT_EQ(section_text(one, section), section_text(two, section));
  const std::string model = section_text(one, "model");
  expect_contains(model, "[model]\nfamily = gpt2\nlayers = 2\nhidden = 24\n");
  EXPECT_EQ(model.find("recompute"), std::string::npos);
  EXPECT_THROW(section_text(one, "modle"), Error);
}

TEST(Deck, DifferencesNameEveryChangedKey) {
  const Settings base = settings_of({});
  const std::string before = to_deck_text(base);
  EXPECT_TRUE(differences(before, before).empty());
  EXPECT_TRUE(differences(section_text(base, "model"), before).empty());
  for (const Setting& row : settings_table()) {
    Settings changed = base;
    for (const char* value : {"7", "0.5", "1", "0", "true", "false", "text", "3,1"})
      if (set_value(row, changed, value).empty() &&
          value_text(row, changed) != value_text(row, base))
        break;
    for (const std::string& choice : row.choices)
      if (choice != value_text(row, base)) set_value(row, changed, choice);
    const auto found = differences(before, to_deck_text(changed));
    ASSERT_EQ(found.size(), 1u) << row.name;
    EXPECT_EQ(found[0].name, row.name);
    EXPECT_EQ(found[0].before, value_text(row, base));
    EXPECT_EQ(found[0].after, value_text(row, changed));
    EXPECT_EQ(found[0].effect, row.effect);
  }
}

TEST(Deck, DifferencesReadOtherVersions) {
  const auto found =
      differences("[model]\nhidden = 24\nold = 3\n", "[model]\nhidden = 024\nnew = 4\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "model.new");
  EXPECT_EQ(found[0].before, "(none)");
  EXPECT_EQ(found[1].after, "(none)");
}

TEST(Deck, LongerRunKeepsItsSchedule) {
  const std::string stored = to_deck_text(settings_of({}));
  Deck longer = parse_deck(kDeck, "a.ini", std::vector<std::string>{"--run.steps=20"});
  EXPECT_EQ(longer.settings.schedule.decay, 20);
  expect_contains(keep_decay(longer, stored), "stays 10 steps");
  EXPECT_EQ(longer.settings.schedule.decay, 10);
  EXPECT_EQ(keep_decay(longer, stored), "");

  Deck asked =
      parse_deck(kDeck, "a.ini", std::vector<std::string>{"--run.steps=20", "--schedule.decay=20"});
  EXPECT_EQ(keep_decay(asked, stored), "");
  EXPECT_EQ(asked.settings.schedule.decay, 20);

  // Counted in sequences: half the batch, twice the steps.
  Deck smaller = parse_deck(kDeck, "a.ini", std::vector<std::string>{"--batch.global=3"});
  keep_decay(smaller, stored);
  EXPECT_EQ(smaller.settings.schedule.decay, 20);
}

}  // namespace
}  // namespace trireme

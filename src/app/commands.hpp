// The subcommands: one file each. Every function takes the arguments behind the command's name and
// returns the exit code; a bad command line throws Error(usage).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::app {

// Commands that run on all ranks of an MPI job; they start MPI themselves.
int train(int argc, char** argv);
int tokenize(int argc, char** argv);
int bench(int argc, char** argv);
int eval(int argc, char** argv);
int generate(int argc, char** argv);
int convert(int argc, char** argv);
// Commands of one process.
int plan(std::span<const std::string> arguments);
int tokenizer(std::span<const std::string> arguments);
int verify(std::span<const std::string> arguments);
int show(std::span<const std::string> arguments);
// `usage` is printed where no topic is given.
int help(std::span<const std::string> arguments, const std::string& usage);

}  // namespace trireme::app

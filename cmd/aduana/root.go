package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// newRoot lists the commands. They come in groups, because people look for what they want to do, not for letters.
func newRoot(p *printer) *cobra.Command {
	const running, questions, other = "running", "questions", "other"
	root := &cobra.Command{
		Use:   "aduana",
		Short: "A gateway for MCP servers: one name, one tool, one decision",
		Long: "aduana stands between agents and MCP servers and lets through what a policy declares.\n" +
			"Everything that it would decide can be asked offline, without network or credentials.",
		SilenceUsage:       true,
		SilenceErrors:      true,
		DisableSuggestions: true, // printer.end gives them, as a hint
		RunE: func(cmd *cobra.Command, args []string) error {
			p.text(cmd.UsageString())
			return &failure{code: exitUsage}
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetHelpCommand(newHelp())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: running, Title: "Running:"},
		&cobra.Group{ID: questions, Title: "Questions before anything runs:"},
		&cobra.Group{ID: other, Title: "Other:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(running, newServe(p), newDemo(p), newDemoUpstream(p))
	add(questions, newValidate(p), newExplain(p), newWhoCan(p), newDiff(p), newTest(p), newNames(p))
	add(other, newAudit(p), newSchema(p), newVersion(p))
	root.SetHelpCommandGroupID(other)
	return root
}

// newHelp replaces cobra's help, which succeeds for a topic that does not exist.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say how a command is used",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("there is no command %q", strings.Join(args, " "))
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// operands demands named arguments, so that a complaint says which one is missing.
func operands(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		command := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		switch {
		case len(args) < len(names):
			return usage("%s needs %s", command, strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return usage("%s takes no %q", command, args[len(names)])
		}
		return nil
	}
}

// addJSON is the flag that every command has.
func addJSON(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "write the result as JSON")
}

// addLock is the flag for the accepted tools. A declared catalogue is the simplest form of a lock, hence the second name.
func addLock(cmd *cobra.Command, lock *string) {
	cmd.Flags().StringVar(lock, "lock", "", "`FILE` of accepted tools: a lock, or a declared catalogue")
	cmd.Flags().StringVar(lock, "catalog", "", "the same as --lock `FILE`")
	cmd.MarkFlagsMutuallyExclusive("lock", "catalog")
}

// required demands flags; the complaint names those that are missing.
func required(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		if err := cmd.MarkFlagRequired(n); err != nil {
			panic(err) // the flag is not declared
		}
	}
}

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"aduana/policy"
)

func newSchema(p *printer) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Write the JSON Schema of the policy file, for editors",
		Args:  operands(),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.text(strings.TrimRight(policy.Schema(), "\n") + "\n")
			return nil
		},
	}
}

package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// productVersion is the one place that names the version.
const productVersion = "0.1.0"

type versionJSON struct {
	Product  string  `json:"product"`
	Version  string  `json:"version"`
	Revision *string `json:"revision"` // of the source, when the build knows it
	Runtime  string  `json:"runtime"`
	Platform string  `json:"platform"`
}

func newVersion(p *printer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  operands(),
		RunE: func(cmd *cobra.Command, args []string) error {
			v := versionJSON{"aduana", productVersion, orNull(revision()), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if asJSON {
				return p.json(v)
			}
			p.line("%s %s (%s, %s)", v.Product, v.Version, v.Runtime, v.Platform)
			return nil
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}

package mcpstdio

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"

	"aduana/gateway"
	"aduana/policy"
)

// baseVariables are what programs need to run at all, and the only variables that a child gets without being asked for. The
// gateway's own environment holds the keys of other upstreams and of clients, so that the list names what goes in, never what
// stays out.
func baseVariables(goos string) []string {
	if goos == "windows" {
		return []string{"PATH", "SystemRoot", "SystemDrive", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TZ"}
	}
	return []string{"PATH", "HOME", "LANG", "TMPDIR", "TZ"}
}

// environment builds the whole environment of a child from nothing: the base, what the upstream inherits by name, what it sets,
// and the credential of its account, each over the ones before.
func environment(t gateway.Target) ([]string, error) {
	u := t.Upstream
	values := map[string]string{}
	for _, names := range [][]string{baseVariables(runtime.GOOS), u.Inherit} {
		for _, n := range names {
			if v, ok := os.LookupEnv(n); ok {
				values[n] = v
			}
		}
	}
	for _, v := range u.Env {
		text, err := valueOf(t, v.Value)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", v.Name, err)
		}
		values[v.Name] = text
	}
	if !t.Material.Secret.Empty() {
		if u.Deliver.Kind != policy.DeliverEnv && u.Deliver.Kind != "" {
			return nil, fmt.Errorf("a child process takes its credential from a variable; deliver: %s is for HTTP", u.Deliver.Kind)
		}
		name := u.Deliver.Name
		if name == "" {
			name = policy.DefaultCredentialVariable
		}
		values[name] = t.Material.Secret.Reveal()
	}
	list := make([]string, 0, len(values))
	for name, v := range values {
		// The system would cut the value, or read one variable as two.
		if strings.ContainsAny(name, "=\x00") || name == "" || strings.Contains(v, "\x00") {
			return nil, fmt.Errorf("env %q: a name holds no = and neither part holds a zero byte", name)
		}
		list = append(list, name+"="+v)
	}
	sort.Strings(list)
	return list, nil
}

// arguments gives the command's arguments, exactly as the policy has them. No shell ever reads them.
func arguments(t gateway.Target) ([]string, error) {
	args := make([]string, 0, len(t.Upstream.Args))
	for i, v := range t.Upstream.Args {
		text, err := valueOf(t, v)
		if err == nil && strings.Contains(text, "\x00") {
			err = fmt.Errorf("holds a zero byte")
		}
		if err != nil {
			return nil, fmt.Errorf("args %d: %w", i, err)
		}
		args = append(args, text)
	}
	return args, nil
}

// valueOf gives a literal, or the secret that was resolved for a reference. Without it nothing starts: an empty setting where a
// secret should be is how a server comes to run open.
func valueOf(t gateway.Target, v policy.Value) (string, error) {
	if !v.IsRef {
		return v.Literal, nil
	}
	m, ok := t.Settings[string(v.Ref)]
	if !ok || m.Secret.Empty() {
		return "", fmt.Errorf("the reference %q was not resolved", v.Ref)
	}
	return m.Secret.Reveal(), nil
}

// secrets gives everything that no log and no error of this child may show.
func secrets(t gateway.Target) []string {
	all := []string{t.Material.Secret.Reveal()}
	for _, m := range t.Settings {
		all = append(all, m.Secret.Reveal())
	}
	return all
}

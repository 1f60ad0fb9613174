package policy

import (
	"net/url"
	"slices"
	"strings"
)

// checkURL wants an absolute http or https URL that holds no credential. The
// URL is never repeated in a message: what is wrong with it may be a secret.
func (k *checker) checkURL(text, pointer string) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		k.error(URLInvalid, pointer, nil, "is not a URL; write https://HOST/PATH")
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		k.error(URLInvalid, pointer, nil, "must be an absolute http or https URL; write https://HOST/PATH")
	case u.User != nil:
		k.error(URLInvalid, pointer, nil, "holds a user name or password; declare an account and keep its secret elsewhere")
	case strings.Contains(text, "#"):
		k.error(URLInvalid, pointer, nil, "holds a fragment, which is never sent; remove it")
	}
}

// ownedHeaders are set by the protocol or by HTTP itself.
func ownedHeader(name string) bool {
	switch name {
	case "host", "connection", "content-length", "content-type", "transfer-encoding", "te", "trailer", "upgrade",
		"keep-alive", "proxy-connection", "accept", "accept-encoding", "last-event-id":
		return true
	}
	return strings.HasPrefix(name, "mcp-")
}

func (k *checker) checkHeaders(u *Upstream) {
	for i, h := range u.Headers {
		name := strings.ToLower(h.Name)
		if ownedHeader(name) {
			k.error(HeaderInvalid, h.Value.Pointer, nil, "the header %q is set by the protocol; remove it", h.Name)
		}
		if i > 0 && name == strings.ToLower(u.Headers[i-1].Name) {
			k.error(HeaderInvalid, h.Value.Pointer, related(u.Headers[i-1].Value.Pointer, "the same header"),
				"the header %q is written twice, header names have no letter case; keep one", h.Name)
		}
		if strings.ContainsAny(h.Value.Literal, "\r\n\x00") {
			k.error(HeaderInvalid, h.Value.Pointer, nil, "the header %q has a value with a line break; remove it", h.Name)
		}
	}
}

// checkDeliver wants a delivery that fits the transport, and that nothing
// else in the declaration writes over.
func (k *checker) checkDeliver(u *Upstream) {
	pointer := u.Pointer
	if u.Deliver.Declared {
		pointer += "/deliver"
	}
	stdio := u.Transport == TransportStdio
	switch {
	case stdio && u.Deliver.Kind != DeliverEnv:
		k.error(DeliverInvalid, pointer, nil, "a process takes its credential from a variable; write env:NAME")
		return
	case !stdio && u.Deliver.Kind == DeliverEnv:
		k.error(DeliverInvalid, pointer, nil, "an mcp-http upstream takes its credential from a header; write bearer or header:NAME")
		return
	case u.AccountNone && u.Deliver.Declared:
		k.error(DeliverInvalid, pointer, related(u.Pointer+"/account", "no account"), "there is no credential to deliver; remove deliver, or name an account")
		return
	case u.AccountNone:
		return
	}
	if stdio {
		for _, v := range u.Env {
			if v.Name == u.Deliver.Name {
				k.error(DeliverInvalid, v.Value.Pointer, nil, "the variable %q receives the credential of the account; remove it here, or deliver into another", v.Name)
			}
		}
		if slices.Contains(u.Inherit, u.Deliver.Name) {
			k.error(DeliverInvalid, u.Pointer+"/inherit", nil, "the variable %q receives the credential of the account; remove it here, or deliver into another", u.Deliver.Name)
		}
		return
	}
	name := "authorization"
	if u.Deliver.Kind == DeliverHeader {
		name = strings.ToLower(u.Deliver.Name)
		if ownedHeader(name) {
			k.error(DeliverInvalid, pointer, nil, "the header %q is set by the protocol; deliver into another", u.Deliver.Name)
			return
		}
	}
	for _, h := range u.Headers {
		if strings.ToLower(h.Name) == name {
			k.error(DeliverInvalid, h.Value.Pointer, nil, "the header %q receives the credential of the account; remove it here, write account: none, or deliver into another", h.Name)
		}
	}
}

func knownScheme(scheme string) bool {
	switch scheme {
	case "env", "file", "keyring", "vault", "gcp-secrets", "aws-secrets", "oauth+https", "oauth+http":
		return true
	}
	return false
}

func (k *checker) checkSecretSchemes() {
	for _, r := range k.places.refs {
		if !knownScheme(r.ref.Scheme()) {
			k.warn(UnknownSecretScheme, r.pointer,
				"no resolver is known for this scheme; known: env, file, keyring, vault, gcp-secrets, aws-secrets, oauth+https")
		}
	}
}

func (k *checker) checkPlainHTTP() {
	for i, u := range k.p.Upstreams {
		if isPlainHTTP(u.URL) {
			k.warn(PlainHTTP, k.places.urls[i], "credentials and data travel readable; write https, unless the network itself is trusted")
		}
	}
	for _, issuer := range k.p.Issuers {
		if isPlainHTTP(issuer.Discovery) {
			k.warn(PlainHTTP, issuer.Pointer+"/discovery", "whoever is on the way can name its own keys; write https")
		}
	}
}

// isPlainHTTP is about http beyond this machine.
func isPlainHTTP(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return host != "localhost" && !strings.HasSuffix(host, ".localhost") && host != "::1" && !isLoopback4(host)
}

// isLoopback4 takes only the plain form of four numbers: a name such as
// 127.0.0.1.example is not on this machine.
func isLoopback4(host string) bool {
	parts := strings.Split(host, ".")
	if len(parts) != 4 || parts[0] != "127" {
		return false
	}
	for _, p := range parts {
		if !isDigits(p) || len(p) > 3 {
			return false
		}
	}
	return true
}

func (k *checker) checkPackages() {
	for _, u := range k.p.Upstreams {
		if pointer, floating := floatingPackage(&u); floating {
			k.warn(FloatingPackage, pointer,
				"%s fetches whatever version is newest at each start; name an exact version", launcher(u.Command))
		}
	}
}

// launcher is the program name without folder and Windows ending.
func launcher(command string) string {
	name := command[strings.LastIndexAny(command, `/\`)+1:]
	name = strings.ToLower(name)
	for _, ending := range []string{".exe", ".cmd", ".ps1"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}

// floatingPackage tells whether a package runner is asked for a package
// without an exact version, and where.
func floatingPackage(u *Upstream) (pointer string, floating bool) {
	args := u.Args
	word := func(i int) string {
		if i < len(args) && !args[i].IsRef {
			return args[i].Literal
		}
		return ""
	}
	python := false
	skip := 0
	switch launcher(u.Command) {
	case "npx", "bunx", "pnpx":
	case "uvx":
		python = true
	case "pnpm", "yarn":
		if word(0) != "dlx" {
			return "", false
		}
		skip = 1
	case "npm":
		if word(0) != "exec" && word(0) != "x" {
			return "", false
		}
		skip = 1
	case "bun":
		if word(0) != "x" {
			return "", false
		}
		skip = 1
	case "uv":
		if word(0) != "tool" || word(1) != "run" {
			return "", false
		}
		skip = 2
	case "pipx":
		if word(0) != "run" {
			return "", false
		}
		python, skip = true, 1
	default:
		return "", false
	}
	if launcher(u.Command) == "uv" {
		python = true
	}
	for i := skip; i < len(args); i++ {
		if args[i].IsRef {
			return "", false // not readable here, so nothing is claimed about it
		}
		arg := args[i].Literal
		flag, value, joined := strings.Cut(arg, "=")
		switch flag {
		case "--package", "-p", "--from", "--spec":
			if flag == "-p" && python {
				i++ // uvx -p is the version of Python
				continue
			}
			if joined {
				return args[i].Pointer, !pinned(value, python)
			}
			if i+1 >= len(args) || args[i+1].IsRef {
				return "", false
			}
			return args[i+1].Pointer, !pinned(args[i+1].Literal, python)
		case "--registry", "--cache", "--userconfig", "--with", "--python", "--index-url", "--index", "--default-index":
			if !joined {
				i++
			}
			continue
		}
		if strings.HasPrefix(arg, "-") {
			continue
		}
		return args[i].Pointer, !pinned(arg, python)
	}
	return "", false
}

// pinned is true for an exact version, a local path, and an archive or
// repository by URL, which a version does not apply to.
func pinned(spec string, python bool) bool {
	if strings.HasPrefix(spec, ".") || strings.HasPrefix(spec, "/") || strings.Contains(spec, "://") || strings.HasPrefix(spec, "file:") {
		return true
	}
	if python {
		if _, version, ok := strings.Cut(spec, "=="); ok {
			return isVersion(version, 2)
		}
	}
	// The first @ of an npm scope is not the one before a version.
	i := strings.LastIndexByte(spec, '@')
	return i > 0 && isVersion(spec[i+1:], 3)
}

// isVersion wants digits, dots and at least so many numbers before any suffix:
// a range, a tag such as latest, or fewer numbers float. To npm, 1.2 is a range.
func isVersion(v string, least int) bool {
	core := v
	if i := strings.IndexAny(v, "-+"); i >= 0 {
		core = v[:i]
	}
	numbers := strings.Split(core, ".")
	if len(numbers) < least {
		return false
	}
	for i, n := range numbers {
		// Python writes 1.0rc1 and 1.0.post1.
		if !isDigits(n) && (i == 0 || n == "" || strings.ContainsAny(n, "*^~<>= xX")) {
			return false
		}
	}
	return true
}

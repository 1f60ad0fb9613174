package capabilities_test

import (
	"crypto/sha256"
	"regexp"
	"strings"
	"testing"

	"aduana/capabilities"

	"pgregory.net/rapid"
)

func tool(upstream, name string) capabilities.Identity {
	return capabilities.Identity{Kind: capabilities.Tool, Upstream: capabilities.UpstreamID(upstream), Name: name}
}

// TestExpose has every shape of a name with the exposed name written by hand. The digests were made outside of Go:
//
//	printf 'mcp:crm:foo%%2Fbar' | sha256sum → eaa2240e…; its first 30 bits in base32 → 5krcid
func TestExpose(t *testing.T) {
	const long = "regional-billing-eu-central-prod" // 32 bytes, the most
	n := func(k int) string { return strings.Repeat("n", k) }
	d, e := strings.Repeat("d", 22), strings.Repeat("e", 21)
	tests := []struct {
		name     string
		upstream string
		tool     string
		limit    int
		want     string
	}{
		// Image 1: verbatim. "crm__" leaves 45 of 50 bytes.
		{"plain", "crm", "get_contact", 50, "crm__get_contact"},
		{"one byte", "crm", "a", 50, "crm__a"},
		{"one hyphen", "crm", "-", 50, "crm__-"},
		{"single hyphens", "crm", "get-contact-", 50, "crm__get-contact-"},
		{"double underscore", "crm", "a__b", 50, "crm__a__b"},
		{"leading underscore", "crm", "_a", 50, "crm___a"},
		{"capitals", "crm", "GetContact", 50, "crm__GetContact"},
		{"limit - 1", "crm", n(44), 50, "crm__" + n(44)},
		{"limit", "crm", n(45), 50, "crm__" + n(45)},
		{"limit 48", "crm", n(43), 48, "crm__" + n(43)},
		{"limit 64", "crm", n(59), 64, "crm__" + n(59)},
		{"upstream of 32, limit", long, "export_invoice", 48, long + "__export_invoice"},
		{"upstream of 32, default limit", long, "export_invoices", 50, long + "__export_invoices"},
		// Names that begin with a digit, names that carry their server's name (X01, X02): nothing is added or taken.
		{"digit", "crm", "1c_probe", 50, "crm__1c_probe"},
		{"underscore and digit", "crm", "_1c_probe", 50, "crm___1c_probe"},
		{"upstream that begins with a digit", "8fb2", "1c_probe", 50, "8fb2__1c_probe"},
		{"its own prefix", "git", "git_log", 50, "git__git_log"},
		{"without the prefix", "git", "log", 50, "git__log"},

		// Image 2: dots.
		{"dot", "crm", "calendar.read", 50, "crm__calendar--read"},
		{"dots", "crm", "a.b.c", 50, "crm__a--b--c"},
		{"dot beside underscore", "crm", "a_.b", 50, "crm__a_--b"},
		{"dot and hyphen apart", "crm", "my-cal.read", 50, "crm__my-cal--read"},
		{"dotted, limit", "crm", d + "." + e, 50, "crm__" + d + "--" + e},
		{"dotted, limit + 1", "crm", d + "." + e + "e", 50, "crm__" + d + "-" + e[:13] + "---xsuml4"},
		{"dotted, upstream of 32", long, "export_inv.csv", 48, long + "__expor---dylpuk"},

		// Image 3: digest. At limit 50 "crm__" leaves 36 bytes for the head.
		{"limit + 1", "crm", n(46), 50, "crm__" + n(36) + "---pujnht"},
		{"limit + 1 of 48", "crm", n(46), 48, "crm__" + n(34) + "---pujnht"},
		{"limit + 1 of 64", "crm", n(64), 64, "crm__" + n(50) + "---c6zbh4"},
		{"64 bytes", "crm", n(64), 50, "crm__" + n(36) + "---c6zbh4"},
		{"128 bytes", "crm", n(128), 50, "crm__" + n(36) + "---sqb4y2"},
		{"long, common head", long, "export_invoices_as_csv", 50, long + "__export_---4flnqj"},
		{"long, common head, other end", long, "export_invoices_as_csv_with_tax", 50, long + "__export_---dxwlsc"},
		{"upstream of 32, limit + 1", long, "export_invoices", 48, long + "__expor---c6mzi5"},
		{"slash", "crm", "foo/bar", 50, "crm__foo-bar---5krcid"},
		{"slash, another upstream", "u", "a/b", 50, "u__a-b---zkqh3s"},
		{"blank", "crm", "foo bar", 50, "crm__foo-bar---u56j6p"},
		{"two hyphens", "crm", "foo--bar", 50, "crm__foo-bar---x5mskc"},
		{"three hyphens", "crm", "a---b", 50, "crm__a-b---75reve"},
		{"hyphen, slash, hyphen", "crm", "foo-/-bar", 50, "crm__foo-bar---ciahxa"},
		{"colon", "crm", "a:b", 50, "crm__a-b---5mn6t4"},
		{"percent", "crm", "100%", 50, "crm__100---kquoce"},
		{"only hyphens: no head", "crm", "---", 50, "crm__---u4zaid"},
		{"two hyphens only: no head", "crm", "--", 50, "crm__---x5hyqx"},
		{"only a dot: no head", "crm", ".", 50, "crm__---dw4xr6"},
		{"dot first", "crm", ".read", 50, "crm__-read---ivx6g6"},
		{"dot last", "crm", "read.", 50, "crm__read---34bshf"},
		{"dot beside dot", "crm", "a..b", 50, "crm__a-b---4aipop"},
		{"dot before hyphen", "crm", "a.-b", 50, "crm__a-b---kcmcfg"},
		{"dot after hyphen", "crm", "a-.b", 50, "crm__a-b---cdbghs"},
		{"dot and two hyphens", "crm", "a.b--c", 50, "crm__a-b-c---5ixq56"},
		{"Cyrillic", "crm", "tr\u0430nsfer", 50, "crm__tr-nsfer---itfejv"},
		{"fullwidth", "crm", "tr\uff41nsfer", 50, "crm__tr-nsfer---qsvobt"},

		// A limit out of bounds is the default.
		{"limit 0", "crm", n(46), 0, "crm__" + n(36) + "---pujnht"},
		{"limit 47", "crm", n(45), 47, "crm__" + n(45)},
		{"limit 65", "crm", n(46), 65, "crm__" + n(36) + "---pujnht"},
		{"limit -1", "crm", n(45), -1, "crm__" + n(45)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(capabilities.Expose(tool(tt.upstream, tt.tool), tt.limit)); got != tt.want {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
		})
	}
	// The digest covers the kind: each kind has its own names.
	for kind, want := range map[capabilities.Kind]string{capabilities.Tool: "crm__a-b---ueyh22", capabilities.Prompt: "crm__a-b---sghxqc",
		capabilities.Resource: "crm__a-b---jrszej", capabilities.Template: "crm__a-b---jevxyu"} {
		if got := string(capabilities.Expose(capabilities.Identity{Kind: kind, Upstream: "crm", Name: "a/b"}, 50)); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}

// TestExposeIsTotal: of an identity that nothing admits, too, there is an answer and not a crash.
func TestExposeIsTotal(t *testing.T) {
	for _, id := range []capabilities.Identity{{}, tool("", ""), tool(strings.Repeat("u", 200), "a/b"), tool("a_b", strings.Repeat("n", 5000)),
		tool("u", "\xff\x00")} {
		if name := capabilities.Expose(id, 48); !strings.HasPrefix(string(name), string(id.Upstream)+"__") {
			t.Errorf("%q", name)
		}
	}
}

// TestDigestAnchor fixes the digest of one name by a value made outside of Go (sha256sum and base32 by hand), so that no change of
// the encoder can go unseen: sha256("mcp:u:a%2Fb") = caa07dc9…, in fives 11001 01010 10000 00111 11011 10010 → z k q h 3 s.
func TestDigestAnchor(t *testing.T) {
	if got := capabilities.Expose(tool("u", "a/b"), 50); got != "u__a-b---zkqh3s" {
		t.Errorf("%q, want %q", got, "u__a-b---zkqh3s")
	}
}

var (
	published = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	verbatim  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	digested  = regexp.MustCompile(`^([A-Za-z0-9_-]*[A-Za-z0-9_])?---[a-z2-7]{6}$`)
)

// image says by plain means which image a name must fall in and, for the injective ones, its local part.
func image(name string, room int) (int, string) {
	if strings.Contains(name, "--") || name == "" {
		return 3, ""
	}
	if verbatim.MatchString(name) {
		if len(name) <= room {
			return 1, name
		}
		return 3, ""
	}
	parts := strings.Split(name, ".")
	for i, p := range parts {
		switch {
		case !verbatim.MatchString(p), i > 0 && p[0] == '-', i < len(parts)-1 && p[len(p)-1] == '-':
			return 3, ""
		}
	}
	local := strings.Join(parts, "--")
	if len(local) > room {
		return 3, ""
	}
	return 2, local
}

// names makes names near each other: the separators and spellings that sanitising gateways confuse.
func names() *rapid.Generator[string] {
	near := rapid.StringOfN(rapid.SampledFrom([]rune("ab.._-/AB:% \u0430")), 1, 6, -1)
	long := rapid.StringOfN(rapid.SampledFrom([]rune("ab.-/")), 30, 60, -1)
	head := rapid.Map(near, func(s string) string { return strings.Repeat("x", 40) + s })
	return rapid.OneOf(near, near, long, head, rapid.String())
}

func upstreams() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom([]string{"a", "a-", "a-b", "a--b", "b", "9", "regional-billing-eu-central-prod"}),
		rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,31}`))
}

func identities() *rapid.Generator[capabilities.Identity] {
	return rapid.Custom(func(t *rapid.T) capabilities.Identity {
		return capabilities.Identity{Kind: rapid.SampledFrom([]capabilities.Kind{capabilities.Tool, capabilities.Tool, capabilities.Prompt,
			capabilities.Resource, capabilities.Template}).Draw(t, "kind"),
			Upstream: capabilities.UpstreamID(upstreams().Draw(t, "upstream")), Name: names().Draw(t, "name")}
	})
}

func thirtyBits(id capabilities.Identity) [4]byte {
	sum := sha256.Sum256([]byte(id.Canonical()))
	return [4]byte{sum[0], sum[1], sum[2], sum[3] &^ 3}
}

func TestExposeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(48, 64).Draw(t, "limit")
		a := identities().Draw(t, "a")
		name := string(capabilities.Expose(a, limit))
		if !published.MatchString(name) || len(name) > limit {
			t.Fatalf("%s is exposed as %q at limit %d", a, name, limit)
		}
		local, ok := strings.CutPrefix(name, string(a.Upstream)+"__")
		if !ok {
			t.Fatalf("%s is exposed as %q, without its upstream", a, name)
		}
		want, exact := image(a.Name, limit-len(a.Upstream)-2)
		got := 1
		switch {
		case strings.Contains(local, "---"):
			got = 3
		case strings.Contains(local, "--"):
			got = 2
		}
		if got != want {
			t.Fatalf("%s is exposed as %q, in image %d, want %d", a, name, got, want)
		}
		if want < 3 && local != exact {
			t.Fatalf("%s is exposed as %q, want %q", a, local, exact)
		}
		if want == 3 && (!digested.MatchString(local) || strings.Count(local, "---") != 1) {
			t.Fatalf("%s is exposed as %q", a, local)
		}

		// Injective: another identity of the kind has another name, unless 30 bits of SHA-256 agree.
		b := identities().Draw(t, "b")
		if rapid.Bool().Draw(t, "same upstream") {
			b.Upstream = a.Upstream
		}
		b.Kind = a.Kind
		if a != b && string(capabilities.Expose(b, limit)) == name && (want != 3 || thirtyBits(a) != thirtyBits(b)) {
			t.Fatalf("%s and %s are both %q", a, b, name)
		}
	})
}

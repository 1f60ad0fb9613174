package principals_test

import (
	"slices"
	"testing"

	"aduana/principals"
)

func attr(name, value string) principals.Attribute {
	return principals.Attribute{Name: name, Value: value}
}

func directory() principals.Directory {
	return principals.NewDirectory([]principals.Issuer{
		{ID: "corp", Attributes: []principals.Declared{{Name: "role", Many: true}, {Name: "team"}}, Disclosure: principals.DisclosePlaces},
		{ID: "partner", Disclosure: principals.DiscloseCodes},
		{ID: "corp", Disclosure: principals.DiscloseCodes}, // a second one of the same id never takes over
	})
}

func TestAdmit(t *testing.T) {
	tests := []struct {
		name      string
		presented principals.Presented
		problem   principals.Problem
		id        string
		kept      []principals.Attribute
		discarded []string
	}{
		{name: "nobody", presented: principals.Presented{}, problem: "issuer_unknown"},
		{name: "unknown issuer", presented: principals.Presented{Issuer: "evil", Subject: "ana"}, problem: "issuer_unknown"},
		{name: "issuer in another spelling", presented: principals.Presented{Issuer: "Corp", Subject: "ana"}, problem: "issuer_unknown"},
		{name: "no subject", presented: principals.Presented{Issuer: "corp"}, problem: "credential_missing"},
		{name: "blank subject", presented: principals.Presented{Issuer: "corp", Subject: " \t\n"}, problem: "credential_missing"},
		{name: "no attributes", presented: principals.Presented{Issuer: "corp", Subject: "ana"}, id: "corp:ana"},
		{name: "subject with the separator", presented: principals.Presented{Issuer: "corp", Subject: "corp:ana"}, id: "corp:corp:ana"},
		{name: "subject kept as it is", presented: principals.Presented{Issuer: "corp", Subject: " Ana "}, id: "corp: Ana "},
		{
			name: "declared attributes, sorted",
			presented: principals.Presented{Issuer: "corp", Subject: "ana",
				Attributes: []principals.Attribute{attr("team", "t"), attr("role", "z"), attr("role", "a")}},
			id: "corp:ana", kept: []principals.Attribute{attr("role", "a"), attr("role", "z"), attr("team", "t")},
		},
		{
			name: "undeclared ones are dropped, and named once",
			presented: principals.Presented{Issuer: "corp", Subject: "ana",
				Attributes: []principals.Attribute{attr("zone", "1"), attr("admin", "true"), attr("admin", "1"), attr("Team", "t")}},
			id: "corp:ana", discarded: []string{"Team", "admin", "zone"},
		},
		{
			name:      "an issuer that declares none",
			presented: principals.Presented{Issuer: "partner", Subject: "bo", Attributes: []principals.Attribute{attr("team", "t")}},
			id:        "partner:bo", discarded: []string{"team"},
		},
		{
			name: "a single-valued one with two values is not produced, never the first",
			presented: principals.Presented{Issuer: "corp", Subject: "ana",
				Attributes: []principals.Attribute{attr("team", "a"), attr("team", "b"), attr("role", "r")}},
			id: "corp:ana", kept: []principals.Attribute{attr("role", "r")}, discarded: []string{"team"},
		},
		{
			name: "the same value twice is one value",
			presented: principals.Presented{Issuer: "corp", Subject: "ana",
				Attributes: []principals.Attribute{attr("team", "a"), attr("team", "a"), attr("role", "r"), attr("role", "r")}},
			id: "corp:ana", kept: []principals.Attribute{attr("role", "r"), attr("team", "a")},
		},
		{
			name: "empty values are none",
			presented: principals.Presented{Issuer: "corp", Subject: "ana",
				Attributes: []principals.Attribute{attr("team", ""), attr("role", ""), attr("role", "r")}},
			id: "corp:ana", kept: []principals.Attribute{attr("role", "r")}, discarded: []string{"role", "team"},
		},
		{
			name: "an empty value beside another one is two values",
			presented: principals.Presented{Issuer: "corp", Subject: "ana",
				Attributes: []principals.Attribute{attr("team", "a"), attr("team", "")}},
			id: "corp:ana", discarded: []string{"team"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.presented.Attributes)
			p, discarded, problem := directory().Admit(tt.presented)
			if problem != tt.problem {
				t.Fatalf("problem %q, want %q", problem, tt.problem)
			}
			if p.Known() != (tt.problem == principals.NoProblem) || p.ID() != tt.id {
				t.Errorf("known %v, id %q, want %q", p.Known(), p.ID(), tt.id)
			}
			if !slices.Equal(p.Attributes(), tt.kept) {
				t.Errorf("kept %v, want %v", p.Attributes(), tt.kept)
			}
			if !slices.Equal(discarded, tt.discarded) {
				t.Errorf("discarded %v, want %v", discarded, tt.discarded)
			}
			if !slices.Equal(tt.presented.Attributes, before) {
				t.Error("Admit changed what was presented")
			}
			if problem == principals.NoProblem && (p.Issuer() != tt.presented.Issuer || p.Subject() != tt.presented.Subject) {
				t.Errorf("issuer %q, subject %q", p.Issuer(), p.Subject())
			}
		})
	}
}

func TestAdmitIsIndependentOfOrder(t *testing.T) {
	list := []principals.Attribute{attr("team", "a"), attr("role", "x"), attr("other", "1"), attr("role", "y"), attr("role", "x")}
	forth, d1, _ := directory().Admit(principals.Presented{Issuer: "corp", Subject: "ana", Attributes: list})
	slices.Reverse(list)
	back, d2, _ := directory().Admit(principals.Presented{Issuer: "corp", Subject: "ana", Attributes: list})
	if !slices.Equal(forth.Attributes(), back.Attributes()) || !slices.Equal(d1, d2) {
		t.Errorf("%v %v; in another order %v %v", forth.Attributes(), d1, back.Attributes(), d2)
	}
}

func TestDisclosureIsTheIssuers(t *testing.T) {
	for issuer, want := range map[principals.IssuerID]principals.Disclosure{"corp": principals.DisclosePlaces, "partner": principals.DiscloseCodes} {
		if p, _, _ := directory().Admit(principals.Presented{Issuer: issuer, Subject: "x"}); p.Disclosure() != want {
			t.Errorf("%s: %d, want %d", issuer, p.Disclosure(), want)
		}
	}
}

func TestZeroValuesAreNobody(t *testing.T) {
	var p principals.Principal
	if p.Known() || p.ID() != "" || p.Issuer() != "" || p.Subject() != "" || len(p.Attributes()) != 0 || p.Disclosure() != principals.DisclosureBySurface {
		t.Errorf("the zero principal is %+v", p)
	}
	if p, _, problem := (principals.Directory{}).Admit(principals.Presented{Issuer: "corp", Subject: "ana"}); problem != principals.IssuerUnknown || p.Known() {
		t.Errorf("the zero directory admits: %q", problem)
	}
}

package env_test

import (
	"os"
	"strings"
	"testing"

	"aduana/accounts"
	"aduana/adapters/env"
	"aduana/gateway/gatewaytest"
)

const variable = "ADUANA_TEST_SECRET_7"

func TestContract(t *testing.T) {
	t.Setenv(variable, "s3cret-of-the-test")
	t.Setenv("ADUANA_TEST_EMPTY", "")
	for _, name := range []string{"7UP", "A-B", "Ñ"} { // set, and still no names of variables
		t.Setenv(name, "x")
	}
	gatewaytest.RunCredentials(t, gatewaytest.CredentialsCase{
		Credentials: env.New(),
		Ref:         "env://" + variable,
		Secret:      "s3cret-of-the-test",
		Bad: []accounts.Reference{
			"env://ADUANA_TEST_EMPTY", "env://ADUANA_TEST_UNSET",
			"env://", "env:" + variable, "ENV://" + variable, " env://" + variable,
			"env://" + variable + "#field", "env://" + variable + "/", "env://" + variable + " ", "env://$" + variable,
			"env://7UP", "env://A-B", "env://Ñ", "env://A=B", "env://A\x00", "file:///" + variable,
		},
		Set:   func(s string) { t.Setenv(variable, s) },
		Unset: func() { os.Unsetenv(variable) },
	})
}

func TestGenerationsOfTwoProcessesDoNotCompare(t *testing.T) {
	t.Setenv(variable, "s3cret-of-the-test")
	a, err := env.New().Resolve(t.Context(), "env://"+variable)
	if err != nil {
		t.Fatal(err)
	}
	b, err := env.New().Resolve(t.Context(), "env://"+variable)
	if err != nil {
		t.Fatal(err)
	}
	if a.Generation == b.Generation {
		t.Error("a generation is a plain function of the secret: it can be searched for")
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for ref, want := range map[accounts.Reference]string{
		"env://ADUANA_TEST_UNSET": `secret "env://ADUANA_TEST_UNSET": the environment variable is not set or is empty; set it before starting`,
		"env://A.B":               `secret "env://A.B": want env://NAME`,
		"vault://kv/x":            `secret "vault://kv/x": the scheme "vault" is not env`,
	} {
		if _, err := env.New().Resolve(t.Context(), ref); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", ref, err, want)
		}
	}
}

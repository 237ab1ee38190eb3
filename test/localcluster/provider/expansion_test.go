package provider

import "testing"

func TestExpandReplacesVariablesAsAKubeletDoes(t *testing.T) {
	vars := map[string]string{"POD_IP": "127.64.0.1", "EMPTY": "", "NESTED": "$(POD_IP)"}
	for name, test := range map[string]struct{ in, want string }{
		"a variable inside a word is replaced":            {"--listen=$(POD_IP):9443", "--listen=127.64.0.1:9443"},
		"several variables are replaced":                  {"$(POD_IP)/$(POD_IP)", "127.64.0.1/127.64.0.1"},
		"an empty variable leaves nothing":                {"a$(EMPTY)b", "ab"},
		"an unknown variable stays as written":            {"$(NOBODY)", "$(NOBODY)"},
		"two dollar signs are one and escape a variable":  {"$$(POD_IP)", "$(POD_IP)"},
		"a value is not expanded again":                   {"$(NESTED)", "$(POD_IP)"},
		"an open parenthesis without end stays":           {"$(POD_IP", "$(POD_IP"},
		"a shell variable is none of a kubelet's":         {"$POD_IP ${POD_IP}", "$POD_IP ${POD_IP}"},
		"a dollar sign at the end stays":                  {"5$", "5$"},
		"text without a dollar sign passes through":       {"--v=2", "--v=2"},
		"an escaped dollar before a variable is one sign": {"$$$(POD_IP)", "$127.64.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := expand(test.in, func(name string) (string, bool) { value, ok := vars[name]; return value, ok })
			if got != test.want {
				t.Errorf("expand(%q) = %q, want %q", test.in, got, test.want)
			}
		})
	}
}

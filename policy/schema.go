package policy

import (
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaID = "https://aduana.example/schema/policy-1.json"

// Schema is the JSON Schema (draft 2020-12) of the policy file, as text. It
// accepts exactly the shapes that Compile accepts; what several places of a
// document mean together is checked after it.
func Schema() string { return schemaText }

// noLoader keeps the schema library from looking anything up: the schema is
// complete, and this package does no I/O.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("no schema is loaded from %q", url)
}

// compileSchema cannot fail for the constant below; if it ever did, the error
// comes out of NewCompiler.
func compileSchema() (parsed any, compiled *jsonschema.Schema, err error) {
	if parsed, err = jsonschema.UnmarshalJSON(strings.NewReader(schemaText)); err != nil {
		return nil, nil, fmt.Errorf("parse the policy schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err = c.AddResource(schemaID, parsed); err != nil {
		return nil, nil, fmt.Errorf("add the policy schema: %w", err)
	}
	if compiled, err = c.Compile(schemaID); err != nil {
		return nil, nil, fmt.Errorf("compile the policy schema: %w", err)
	}
	return parsed, compiled, nil
}

// Kinds are told apart with if/then and not with oneOf: an editor then
// completes the members of the chosen kind, and a violation names one reason
// instead of one per kind.
const schemaText = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "https://aduana.example/schema/policy-1.json",
  "title": "aduana policy",
  "description": "Who may call which capability, with which account, and how often. What is not declared is denied.",
  "type": "object",
  "required": ["version", "capabilities", "accounts", "principals", "grants"],
  "additionalProperties": false,
  "properties": {
    "version": { "description": "Version of this format.", "const": 1 },
    "naming": { "$ref": "#/$defs/naming" },
    "capabilities": {
      "description": "What can be done. Grants name capabilities, never tools.",
      "type": "array", "items": { "$ref": "#/$defs/capability" }
    },
    "upstreams": {
      "description": "The MCP servers behind the gateway.",
      "type": "array", "items": { "$ref": "#/$defs/upstream" }
    },
    "accounts": {
      "description": "The identities that calls run with.",
      "type": "array", "items": { "$ref": "#/$defs/account" }
    },
    "principals": {
      "title": "principals",
      "description": "Who calls.",
      "type": "object",
      "required": ["issuers"],
      "additionalProperties": false,
      "properties": {
        "issuers": {
          "description": "The sources of identities.",
          "type": "array", "items": { "$ref": "#/$defs/issuer" }
        }
      }
    },
    "grants": {
      "description": "Who may do what, with which account. There is no order and no deny rule.",
      "type": "array", "items": { "$ref": "#/$defs/grant" }
    }
  },
  "$defs": {
    "naming": {
      "title": "naming",
      "description": "How tools are named to clients.",
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "maxLength": {
          "description": "Longest exposed name, in characters.",
          "type": "integer", "minimum": 48, "maximum": 64, "default": 50
        },
        "similar": {
          "description": "Names of one upstream that differ only in letter case: withhold them, or only warn.",
          "type": "string", "enum": ["withhold", "warn"], "default": "withhold"
        }
      }
    },
    "capability": {
      "title": "capability",
      "type": "object",
      "required": ["id"],
      "additionalProperties": false,
      "properties": {
        "id": { "$ref": "#/$defs/capabilityId" },
        "description": { "description": "What it means, for people.", "type": "string" },
        "risk": {
          "description": "What a call can do. Left out, it counts as write.",
          "type": "string", "enum": ["read", "write", "destructive"], "default": "write"
        }
      }
    },
    "upstream": {
      "title": "upstream",
      "type": "object",
      "required": ["id", "transport", "tools"],
      "additionalProperties": false,
      "properties": {
        "id": { "$ref": "#/$defs/upstreamId" },
        "transport": { "$ref": "#/$defs/transport" },
        "cwd": { "description": "Working directory of the process (mcp-stdio).", "type": "string", "minLength": 1 },
        "env": {
          "description": "Environment variables of the process (mcp-stdio). Only these, inherit and a minimal set reach it.",
          "title": "env",
          "type": "object",
          "patternProperties": { "^[A-Za-z_][A-Za-z0-9_]*$": { "$ref": "#/$defs/value" } },
          "additionalProperties": false
        },
        "inherit": {
          "description": "Variables that the process gets from the gateway's own environment (mcp-stdio).",
          "type": "array", "items": { "$ref": "#/$defs/variableName" }
        },
        "headers": {
          "description": "Headers of every request (mcp-http).",
          "title": "headers",
          "type": "object",
          "patternProperties": { "^[A-Za-z0-9!#$%&'*+.^_|~-]+$": { "$ref": "#/$defs/value" } },
          "additionalProperties": false
        },
        "account": {
          "description": "The account of grants that leave out using, or none for calls without a credential.",
          "type": "string", "$ref": "#/$defs/identifier"
        },
        "deliver": {
          "title": "delivery",
          "description": "How the credential arrives: bearer, header:NAME (mcp-http) or env:NAME (mcp-stdio).",
          "type": "string",
          "pattern": "^(bearer|header:[A-Za-z0-9!#$%&'*+.^_|~-]+|env:[A-Za-z_][A-Za-z0-9_]*)$"
        },
        "timeout": { "description": "Longest time for one call.", "$ref": "#/$defs/duration" },
        "concurrency": { "description": "Calls at once.", "type": "integer", "minimum": 1, "maximum": 1024 },
        "arguments": {
          "description": "strict refuses every call whose arguments do not fit the tool's schema.",
          "type": "string", "enum": ["strict", "lenient"], "default": "lenient"
        },
        "drift": {
          "description": "withhold also withholds a tool when only its texts changed.",
          "type": "string", "enum": ["withhold", "default"], "default": "default"
        },
        "tools": {
          "description": "The tools that may be used. What is not listed does not exist for callers.",
          "type": "array", "items": { "$ref": "#/$defs/tool" }
        }
      },
      "allOf": [
        {
          "if": { "properties": { "transport": { "properties": { "kind": { "const": "mcp-http" } }, "required": ["kind"] } }, "required": ["transport"] },
          "then": { "properties": { "cwd": false, "env": false, "inherit": false } }
        },
        {
          "if": { "properties": { "transport": { "properties": { "kind": { "const": "mcp-stdio" } }, "required": ["kind"] } }, "required": ["transport"] },
          "then": { "properties": { "headers": false } }
        }
      ]
    },
    "transport": {
      "title": "transport",
      "description": "How the upstream is reached.",
      "type": "object",
      "required": ["kind"],
      "properties": { "kind": { "type": "string", "enum": ["mcp-stdio", "mcp-http"] } },
      "allOf": [
        {
          "if": { "properties": { "kind": { "const": "mcp-stdio" } }, "required": ["kind"] },
          "then": { "$ref": "#/$defs/stdio" }
        },
        {
          "if": { "properties": { "kind": { "const": "mcp-http" } }, "required": ["kind"] },
          "then": { "$ref": "#/$defs/http" }
        }
      ]
    },
    "stdio": {
      "title": "mcp-stdio transport",
      "type": "object",
      "required": ["command"],
      "additionalProperties": false,
      "properties": {
        "kind": true,
        "command": { "description": "The program to start; no shell is involved.", "type": "string", "minLength": 1 },
        "args": {
          "description": "Its arguments.",
          "type": "array", "items": { "$ref": "#/$defs/value" }
        }
      }
    },
    "http": {
      "title": "mcp-http transport",
      "type": "object",
      "required": ["url"],
      "additionalProperties": false,
      "properties": {
        "kind": true,
        "url": { "description": "The MCP endpoint, http or https.", "type": "string", "format": "uri", "minLength": 1 }
      }
    },
    "tool": {
      "title": "tool",
      "type": "object",
      "required": ["name", "capability"],
      "additionalProperties": false,
      "properties": {
        "name": { "description": "The name as the upstream lists it.", "type": "string", "minLength": 1 },
        "capability": { "$ref": "#/$defs/capabilityId" }
      }
    },
    "account": {
      "title": "account",
      "type": "object",
      "required": ["id", "secret"],
      "additionalProperties": false,
      "properties": {
        "id": { "$ref": "#/$defs/accountId" },
        "disabled": { "description": "Refuse every call with this account.", "type": "boolean", "default": false },
        "secret": { "$ref": "#/$defs/secret" },
        "for": {
          "description": "The upstreams it may reach. Needed when there is more than one.",
          "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/upstreamId" }
        }
      }
    },
    "issuer": {
      "title": "issuer",
      "type": "object",
      "required": ["id", "kind"],
      "additionalProperties": false,
      "properties": {
        "id": { "$ref": "#/$defs/identifier" },
        "kind": { "description": "How its principals are authenticated.", "type": "string", "enum": ["oidc", "static-key", "mtls"] },
        "discovery": { "description": "OpenID configuration (oidc).", "type": "string", "format": "uri", "minLength": 1 },
        "audience": { "description": "Required audience of a token (oidc).", "type": "string", "minLength": 1 },
        "subject": { "description": "The subject of the key (static-key).", "type": "string", "minLength": 1 },
        "secret": { "description": "Where the key is kept (static-key).", "$ref": "#/$defs/secret" },
        "disclosure": {
          "description": "How much of a decision a caller is told: its place in this file, or only its code.",
          "type": "string", "enum": ["places", "codes"]
        },
        "attributes": {
          "description": "Attributes of its principals and where each comes from: claim:NAME (oidc), dn:COMPONENT (mtls), or the value itself (static-key).",
          "type": "object",
          "additionalProperties": { "$ref": "#/$defs/attribute" }
        }
      }
    },
    "attribute": {
      "title": "attribute source",
      "type": ["string", "object"],
      "if": { "type": "object" },
      "then": {
        "title": "attribute source",
        "type": "object",
        "required": ["from"],
        "additionalProperties": false,
        "properties": {
          "from": { "description": "The source of the value.", "type": "string", "minLength": 1 },
          "many": { "description": "The attribute is a set; a selector means that it contains the value.", "type": "boolean", "default": false }
        }
      },
      "else": { "minLength": 1 }
    },
    "grant": {
      "title": "grant",
      "type": "object",
      "required": ["to", "capabilities"],
      "additionalProperties": false,
      "properties": {
        "to": {
          "title": "selector",
          "description": "The principals it is for.",
          "type": "object",
          "required": ["issuer"],
          "additionalProperties": false,
          "properties": {
            "issuer": { "$ref": "#/$defs/identifier" },
            "attributes": {
              "description": "Values that a principal must have, all of them.",
              "type": "object",
              "additionalProperties": { "type": "string", "minLength": 1 }
            }
          }
        },
        "capabilities": {
          "description": "What they may do.",
          "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/capabilityId" }
        },
        "using": { "description": "The account that calls run with. Left out, it is the account of the upstream.", "$ref": "#/$defs/identifier" },
        "limits": {
          "description": "One ceiling or several; all of them hold.",
          "type": ["object", "array"],
          "if": { "type": "array" },
          "then": { "minItems": 1, "maxItems": 16, "items": { "$ref": "#/$defs/limit" } },
          "else": { "$ref": "#/$defs/limit" }
        },
        "from": { "description": "Valid from this instant on, RFC 3339.", "$ref": "#/$defs/instant" },
        "until": { "description": "Valid before this instant, RFC 3339.", "$ref": "#/$defs/instant" },
        "ask": {
          "description": "When a person is asked before the call.",
          "type": "string", "enum": ["always", "destructive", "never"], "default": "destructive"
        }
      }
    },
    "limit": {
      "title": "ceiling",
      "type": "object",
      "required": ["calls", "per"],
      "additionalProperties": false,
      "properties": {
        "calls": { "description": "At most so many calls; 0 suspends the grant.", "type": "integer", "minimum": 0, "maximum": 9007199254740991 },
        "per": { "$ref": "#/$defs/window" },
        "over": {
          "description": "What is counted together: principal, grant, account, or the name of a single-valued attribute.",
          "type": "string", "minLength": 1, "default": "principal"
        }
      }
    },
    "secret": {
      "title": "secret reference",
      "description": "Where a secret is kept. A secret itself is never written here.",
      "type": "object",
      "required": ["ref"],
      "additionalProperties": false,
      "properties": { "ref": { "$ref": "#/$defs/secretRef" } }
    },
    "value": {
      "title": "value",
      "description": "Text, or { ref: ... } for a secret.",
      "type": ["string", "object"],
      "if": { "type": "object" },
      "then": { "$ref": "#/$defs/secret" }
    },
    "secretRef": {
      "title": "secret reference",
      "description": "scheme://place, such as env://NAME or vault://kv/path#field.",
      "type": "string",
      "pattern": "^[a-z][a-z0-9+.-]*://.+",
      "not": { "pattern": "[{}]" }
    },
    "identifier": {
      "title": "id",
      "description": "Lower-case letters, digits and hyphens.",
      "type": "string", "maxLength": 128, "pattern": "^[a-z0-9][a-z0-9-]*$"
    },
    "upstreamId": {
      "title": "upstream id",
      "description": "Lower-case letters, digits and hyphens, at most 32. It is the first part of every exposed name.",
      "type": "string", "maxLength": 32, "pattern": "^[a-z0-9][a-z0-9-]*$",
      "not": { "const": "aduana" }
    },
    "accountId": {
      "title": "account id",
      "description": "Lower-case letters, digits and hyphens. The word none is reserved.",
      "type": "string", "maxLength": 128, "pattern": "^[a-z0-9][a-z0-9-]*$",
      "not": { "const": "none" }
    },
    "capabilityId": {
      "title": "capability id",
      "description": "Lower-case words and digits, joined by dots or hyphens.",
      "type": "string", "maxLength": 128, "pattern": "^[a-z0-9]+([.-][a-z0-9]+)*$"
    },
    "variableName": {
      "title": "name of an environment variable",
      "description": "Letters, digits and underscores, not starting with a digit.",
      "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"
    },
    "window": {
      "title": "window",
      "description": "A whole number and s, m, h or d, such as 24h.",
      "type": "string",
      "pattern": "^[1-9]([0-9]{0,8}s|[0-9]{0,7}m|[0-9]{0,5}h|[0-9]{0,4}d)$"
    },
    "duration": {
      "title": "duration",
      "description": "A whole number and ms, s, m or h, such as 30s.",
      "type": "string",
      "pattern": "^[1-9][0-9]{0,5}(ms|s|m|h)$"
    },
    "instant": {
      "title": "instant",
      "description": "RFC 3339 with a time zone, such as 2026-05-03T00:00:00Z.",
      "type": "string",
      "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,3})?(Z|[+-][0-9]{2}:[0-9]{2})$"
    }
  }
}
`

"""Who may play a role beside the policy, one file each."""

"""Digests of format 1, which hashed every switch, by the preset that had them.

Reports and ledger rows of version 0.1 hold them; `posttrain method show DIGEST` finds the name.
Written once, with the code of then: nothing computes these any more.
"""

FORMAT_1 = {
    "e0b8d621ce88a614ca3369a34285937617e8dbc16af4afce11d66a4fe36e4cf4": "default",
    "650b55e45c0f45248c83c226e52393d32a58ef67d60fda532f4e32602ec90042": "grpo",
    "6e2a9130975df461269e28f77a98067f17b6c764d273987715b91cf016679a7a": "dr_grpo",
    "c5462ab4963bac5309f127b8bb91bb48d4bc46535e77ffaa261960e80f20a889": "dapo",
    "37edf05c35578bc13db7ab3e64a94f06d66a56d19872eb04abf65f7e2bc316fa": "gspo",
    "cb2d6b23647168622d40f01f6711933cc016f12751fa92cfed76f02466390965": "gspo_token",
    "87dc578dd8d2b9b70a79d72531fc8144026abdd5927c809e2618222bc050d5f8": "cispo",
    "b5dc1c9bc207e75e85e1ec0261abc291ba40df8ccd107caf9437b92a9f342a4b": "lite_ppo",
    "463465eb45d71c9b32f508c76e6d92f83a324cb800791ae8fae4a174514e2c76": "maxrl",
    "bd45a386813d4a7502a7b2d3faaeb4e8e1f757a061604b2ec369e6b128a45d7e": "sapo",
    "cc3c98c802c74427cbc82e4eb44529f55285ec90c8080a7e9e814e5f910eda50": "gmpo",
    "04d683ea9538c4147522b6cbc8dfaa18be785d2278c67303072b55b49bed5b45": "kimi",
    "fc3e301a6ebc42582bebd62865db8a034f569e581f907cf482c782d684f7ee7c": "ppo",
    "a8e92028a685db144c1560a1953ad6a3a6fa6ddc007cfc2d7b57b840ba792d67": "rloo",
    "2df1e09e36b955ad27423d3609c0b0278c74cecb77929530788fea71406ba6ba": "reinforce",
    "68bbe478f0ef9ed74e7d0d128fbb81882aef3ea799cf48a080e2e6d14c1567a3": "reinforce_plus_plus",
    "703fd927afb4d062c8c06b7f4c2f2020049bdd112fc9297b75d1529789323120": "reinforce_plus_plus_baseline",  # noqa: E501
    "e4ff6d22fa49d631d41380f7c1033034a3f246c61038c7218fb4b8fb00b596f9": "nsr",
    "b18bed26daa9cb0343da20251f8408769481f00f9cb512ef43bc11ba2d221869": "w_reinforce",
    "fe1eda9a6c86787f5ff538fd18a6ffaebf79b0bf91f3d1576103503043ed6743": "grpo_trl",
    "9b8408faf2a62c9a73991296568ff2ea45e43dfdb4f7acd9fcf50f4f0a239fa0": "cispo_trl",
    "5afcd0a71a1f0ce85dfb113e435bbc9fa890a53f693b36b1393cf99f17fb44cd": "rloo_trl",
    "80230bbefa20811f966229691e28620832211df44f9b51ccf0df9ac2d8419c71": "grpo_verl",
    "ca7241aea2099f0b4f601dd437200b4f649fd5eef2e95334878656284d3b1012": "grpo_open_instruct",
    "efafdd345febf1493f1b1a3e9048daa9065281abe247cdd957d3568d4ce7795d": "cispo_open_instruct",
    "8e0a2ff5c8d6ecb9b1dc604a9fc95c18d943596e464f0edfabc78f27afb0fc61": "dpo",
    "858c2a6c41454c5259e23dcc1ba7d64d9596c4e71d5d41d12b23965f8a5d4e58": "conservative",
    "a2038485dca4cb580de12700fd177867b259f976c2c8d7ca16d740db1917a8be": "robust",
    "498f3426345c9cd994d08fd2438c19e5c0ee38dc39dc22769a4f9adc997dc303": "ipo",
    "683ebdd8dc5cb867b15aba1d117a72f5206d6e6aac435916fe2f02d2d0cc43cf": "ipo_per_token",
    "c105876379576d483db9c8025ed4aca540d4df9a50407ae0d92ce2a0a935e94b": "hinge",
    "224eb46bff1c4305b01d7e8bcf59501d92441a6a4b6f6ee5a8235229f690f2dc": "kto",
    "fc70f83bae6e8f1438293acc56cb152e93191694775fc932e1d2b5c8f63bd6a2": "orpo",
    "f99c773289dc02b8093cba4636071f0f2ff6044f05feca9aab39dcd2735ef8fb": "simpo",
    "c8e47057bc319601edffb6933b1baab9c38a019faf899a33639782e44204a31b": "iterative_rpo",
    "3da72eac126b8bf8fab141dac471ebebdb73a2ddc7cb25354ae782c5f5981dca": "xpo",
    "a5bab4074398271941dfe6bc74e165a42d28eb50008e6ec2a5bf05accb8fc806": "ld_dpo",
}

from scrapy import Field, Item


class Website(Item):
    name = Field()
    url = Field()
    description = Field()
